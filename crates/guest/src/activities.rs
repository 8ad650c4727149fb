//! What was started: the activity in front, and what is remembered of those before.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

const REMEMBERED: usize = 20;

/// An activity, `package/class`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    pub package: String,
    pub class: String,
}

impl Component {
    /// Reads `com.example/.Main` or `com.example/com.example.Main`.
    pub fn parse(text: &str) -> Option<Component> {
        let (package, class) = text.split_once('/')?;
        if package.is_empty() || class.is_empty() {
            return None;
        }
        let class = if class.starts_with('.') { format!("{package}{class}") } else { class.to_owned() };
        Some(Component { package: package.to_owned(), class })
    }

    /// With the class shortened where it can be.
    pub fn short(&self) -> String {
        let class = self.class.strip_prefix(&self.package).filter(|class| class.starts_with('.'));
        format!("{}/{}", self.package, class.unwrap_or(&self.class))
    }
}

#[derive(Default)]
pub struct Activities {
    started: Mutex<VecDeque<Component>>,
}

impl Activities {
    pub fn start(&self, component: Component) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain(|other| *other != component);
        started.push_back(component);
        if started.len() > REMEMBERED {
            started.pop_front();
        }
    }

    pub fn front(&self) -> Option<Component> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).back().cloned()
    }

    /// Ends everything of a package; says whether there was anything.
    pub fn stop(&self, package: &str) -> bool {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let before = started.len();
        started.retain(|component| component.package != package);
        started.len() < before
    }

    /// Back to the home screen.
    pub fn home(&self) {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Back by one.
    pub fn back(&self) {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).pop_back();
    }
}

#[cfg(test)]
mod tests {
    use super::Component;

    #[test]
    fn a_component_is_a_package_and_a_class() {
        for (text, short) in [
            ("com.x/.Main", Some("com.x/.Main")),
            ("com.x/com.x.Main", Some("com.x/.Main")),
            ("com.x/org.y.Main", Some("com.x/org.y.Main")),
            ("com.x", None),
            ("/Main", None),
            ("com.x/", None),
        ] {
            assert_eq!(Component::parse(text).map(|component| component.short()).as_deref(), short, "{text}");
        }
    }
}

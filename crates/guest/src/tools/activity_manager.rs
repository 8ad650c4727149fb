//! `am`: starting and stopping what is installed. Nothing runs here; it is recorded, logged and shown.

use super::{Answer, Outcome, Words};
use crate::activities::Component;
use crate::device::Device;
use crate::logs::{Buffer, Level};

const VALUED: [&str; 12] =
    ["-n", "-a", "-d", "-c", "-t", "-f", "-p", "--user", "--es", "--ei", "--ez", "--display"];

pub fn am(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    match args {
        ["start" | "start-activity", rest @ ..] => start(device, rest, to),
        ["force-stop" | "kill" | "stop-app", rest @ ..] => {
            let words = Words::parse(rest, &["--user"])?;
            let package = words.words.first().ok_or("name a package")?;
            device.activities.stop(package);
            device.properties.nudge();
            log(device, Level::Info, &format!("Force stopping {package}"));
            Ok(0)
        }
        ["broadcast", rest @ ..] => {
            let intent = intent(rest)?;
            log(device, Level::Info, &format!("Broadcast {intent}"));
            to.say(&format!("Broadcasting: Intent {intent}\nBroadcast completed: result=0\n"))?;
            Ok(0)
        }
        ["get-current-user"] => Ok(to.say("0\n").map(|()| 0)?),
        _ => Err("usage: am start -n PACKAGE/CLASS [-a ACTION] [-d DATA] [-W] | force-stop PACKAGE | broadcast -a ACTION".into()),
    }
}

fn log(device: &Device, level: Level, message: &str) {
    device.log.add(Buffer::System, level, "ActivityManager", std::process::id(), message);
}

fn intent(args: &[&str]) -> Result<String, String> {
    let words = Words::parse(args, &VALUED)?;
    let parts = [("-a", "act"), ("-d", "dat"), ("-n", "cmp"), ("-p", "pkg")];
    let named =
        parts.iter().filter_map(|(option, name)| Some(format!("{name}={} ", words.options.get(option)?)));
    let bare = words.words.first().filter(|word| word.contains('/')).map(|word| format!("cmp={word} "));
    Ok(format!("{{ {}{}}}", named.collect::<String>(), bare.unwrap_or_default()))
}

fn start(device: &Device, args: &[&str], to: &mut Answer) -> Outcome {
    let words = Words::parse(args, &VALUED)?;
    let intent = intent(args)?;
    to.say(&format!("Starting: Intent {intent}\n"))?;
    let named = words.options.get("-n").or(words.words.first());
    let component = match (named, words.options.get("-p")) {
        (Some(name), _) => Component::parse(name).ok_or_else(|| format!("Bad component name: {name}"))?,
        (None, Some(package)) => {
            Component { package: (*package).to_owned(), class: format!("{package}.Main") }
        }
        // An intent that names nobody, such as a page to view, goes to the home screen.
        (None, None) => {
            Component { package: "org.paddock.home".to_owned(), class: "org.paddock.home.Viewer".to_owned() }
        }
    };
    if device.packages.find(&component.package).is_none() {
        log(device, Level::Warn, &format!("START {intent}: {} is not installed", component.package));
        to.complain(&format!(
            "Error type 3\nError: Activity class {{{}}} does not exist.\n",
            component.short()
        ))?;
        return Ok(1);
    }
    let short = component.short();
    log(device, Level::Info, &format!("START u0 {{cmp={short}}} with {intent} from uid 0"));
    device.log.add(
        Buffer::Events,
        Level::Info,
        "wm_on_resume_called",
        std::process::id(),
        &format!("[0,{short}]"),
    );
    device.activities.start(component);
    device.properties.nudge();
    if words.has("-W") {
        to.say(&format!(
            "Status: ok\nLaunchState: COLD\nActivity: {short}\nTotalTime: 1\nWaitTime: 1\nComplete\n"
        ))?;
    }
    Ok(0)
}

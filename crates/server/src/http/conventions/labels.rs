//! Label selectors in queries.

use paddock_model::error::Fault;
use paddock_model::labels::LabelSelector;
use paddock_model::{Error, Result};

pub fn label_selector(text: Option<&str>) -> Result<LabelSelector> {
    LabelSelector::parse(text.unwrap_or_default()).map_err(|problem| {
        let fault = Fault { pointer: "/labelSelector".to_owned(), code: "invalid".into(), message: problem };
        Error::malformed("invalid_parameter", "The label selector cannot be read; see errors.")
            .with_faults(vec![fault])
    })
}

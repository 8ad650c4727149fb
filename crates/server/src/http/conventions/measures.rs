//! How long requests take, by method, route template and status.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use metrics::Histogram;

type Series = Vec<(&'static str, u16, Histogram)>;

thread_local! {
    // Finding a series by its labels costs more than counting into it; each thread keeps those it has found.
    static FOUND: RefCell<HashMap<String, Series>> = RefCell::default();
}

pub fn record(method: &'static str, route: &str, status: u16, took: Duration) {
    FOUND.with_borrow_mut(|found| {
        let series = found.get(route).into_iter().flatten();
        if let Some((.., histogram)) =
            series.into_iter().find(|(verb, code, _)| (*verb, *code) == (method, status))
        {
            return histogram.record(took);
        }
        let histogram = metrics::histogram!("paddock_http_request_duration_seconds",
            "method" => method, "route" => route.to_owned(), "status" => status.to_string());
        histogram.record(took);
        found.entry(route.to_owned()).or_default().push((method, status, histogram));
    });
}

//! Log lines on standard error: for people on a terminal, JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogFormat;

/// Starts logging; a filter that cannot be read is refused.
pub fn start(format: LogFormat, level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("log.level: {error}"))?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let human = match format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let started = if human {
        lines.with_target(false).with_ansi(std::io::stderr().is_terminal()).finish().try_init()
    } else {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).finish().try_init()
    };
    started.map_err(|error| error.to_string())
}

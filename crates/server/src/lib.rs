//! paddockd: serves the API and runs the loops.

pub mod auth;
mod bridge;
pub mod config;
pub mod connect;
pub mod grpc;
pub mod http;
mod jwt;
pub mod listener;
pub mod logging;
mod takeover;
pub mod wiring;

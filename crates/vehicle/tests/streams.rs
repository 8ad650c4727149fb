//! A thousand who watch one car, and some of them who do not look.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paddock_model::vehicles::{AreaId, PropertyId, PropertyStatus};
use paddock_vehicle::Raw;
use tonic::Code;
use world::{VENDOR_TEXT, car, clock, driver, narrow_driver};

const READERS: u64 = 900;
const STALLED: u64 = 100;
const SETS: u64 = 300;
/// Large, so that a few hundred are more than is kept for those who are behind.
const BYTES: usize = 16_000;

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_that_do_not_read_harm_none_of_nine_hundred_that_do() {
    let vehicle = car(&clock());
    let mut connections = Vec::new();
    let mut stalled = Vec::new();
    for number in 0..STALLED / 10 {
        let mut driver = narrow_driver(&vehicle, &format!("stalled {number}"), 65_535).await;
        for _ in 0..10 {
            stalled.push(driver.stream().await);
        }
        connections.push(driver);
    }
    let received = Arc::new(AtomicU64::new(0));
    let mut readers = Vec::new();
    for number in 0..READERS / 10 {
        let mut driver = driver(&vehicle, &format!("reader {number}")).await;
        for _ in 0..10 {
            let (mut stream, received) = (driver.stream().await, received.clone());
            readers.push(tokio::spawn(async move {
                for number in 0..SETS {
                    let told = stream.message().await.expect("no error").expect("not the end");
                    assert!(told.values[0].string_value.starts_with(&format!("{number} ")), "{number}");
                    received.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        connections.push(driver);
    }
    assert_eq!(vehicle.streams() as u64, READERS + STALLED);
    let before = resident();
    for number in 0..SETS {
        let raw = Raw { string_value: format!("{number} {}", "x".repeat(BYTES)), ..Default::default() };
        let told = vehicle.set(vec![((PropertyId(VENDOR_TEXT), AreaId(0)), raw, PropertyStatus::Available)]);
        assert_eq!(told, [Ok(())]);
        // No faster than it is read on the whole; nobody waits for the stalled ones.
        while (number + 1) * READERS > received.load(Ordering::Relaxed) + 20 * READERS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for reader in readers {
        tokio::time::timeout(Duration::from_secs(120), reader).await.expect("in time").expect("everything");
    }
    // What the rings keep for those who may still read it, and what lies in the buffers of connections.
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{} MiB", grown >> 20);

    let ends = stalled.into_iter().map(|mut stream| async move {
        loop {
            match tokio::time::timeout(Duration::from_secs(60), stream.message()).await.expect("in time") {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended as if everything had been told"),
                Err(status) => break status,
            }
        }
    });
    for ended in futures_util::future::join_all(ends).await {
        assert_eq!(ended.code(), Code::ResourceExhausted);
        assert!(ended.message().contains("open it again"));
    }
}

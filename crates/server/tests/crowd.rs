//! Many real devices at once through the API, and how quick the API is meanwhile. In a file of its own, so that nothing
//! else runs beside it.

mod daemon;
mod yard;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use yard::{Adb, Data, Phone, Yard, is_long};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_devices_come_up_at_once_and_the_api_stays_quick() {
    let count = if is_long() { 20 } else { 6 };
    let data = Data::new();
    let yard = Yard::open(&data, &[]);
    let adb = Adb::new();
    let tenant = yard.tenant("acme").await;

    // Somebody looks at the list all the while.
    let (look, over) = (yard.request("GET", "/api/v1/emulators"), Arc::new(AtomicBool::new(false)));
    let stop = over.clone();
    let looks = tokio::spawn(async move {
        let mut times = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let asked = Instant::now();
            let answer = look.try_clone().expect("no body").send().await.expect("an answer");
            assert_eq!(answer.status(), 200);
            answer.bytes().await.expect("a body");
            times.push(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        times
    });

    let begun = Instant::now();
    let mut phones: Vec<Phone> = Vec::new();
    for _ in 0..count {
        phones.push(yard.phone(&tenant).await);
    }
    let wanted = begun.elapsed();
    for phone in &phones {
        yard.until(&phone.id, "running").await;
    }
    let up = begun.elapsed();
    assert_eq!(data.processes("").len(), count);
    for phone in &phones {
        adb.connect(&phone.address);
        assert_eq!(adb.shell(&phone.address, "getprop ro.serialno"), phone.serial);
    }
    let ending = Instant::now();
    for phone in &phones {
        yard.call("DELETE", &format!("/api/v1/emulators/{}", phone.id), None).await;
    }
    for phone in &phones {
        yard.until(&phone.id, "terminated").await;
    }
    let gone = ending.elapsed();

    over.store(true, Ordering::Relaxed);
    let mut times = looks.await.expect("somebody looked");
    times.sort_unstable();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "{count} devices wanted after {wanted:?}, up after {up:?}, gone in {gone:?}; {} lists: p50 {p50:?}, p99 {p99:?}",
        times.len()
    );
    assert!(p99 < Duration::from_secs(2), "{p99:?}");
    assert!(data.processes("").is_empty());
    assert_eq!(data.leftovers(), [] as [std::path::PathBuf; 0]);
    let told = yard.sound();
    assert!(told.contains(&format!("0 addresses are in use, {count} have been given back")), "{told}");
}

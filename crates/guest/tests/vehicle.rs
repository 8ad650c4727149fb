//! A car that is not there, or is none: the device stays as it is, and tries again.

mod world;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use world::{Agent, eventually, noise};

#[test]
fn a_device_tries_again_until_its_car_speaks_and_goes_where_it_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let calls = Arc::new(Mutex::new(Vec::new()));
    let heard = calls.clone();
    std::thread::spawn(move || {
        let garbage = noise(100_000);
        // Nothing, noise, another protocol, a frame that is too long, and settings without end.
        let says: [&[u8]; 5] = [
            b"",
            &garbage,
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\xff\xff\xff\x00\x00\x00\x00\x00\x00",
            &b"\x00\x00\x00\x04\x00\x00\x00\x00\x00".repeat(5000),
        ];
        for (stream, say) in listener.incoming().zip(says.iter().cycle()) {
            heard.lock().expect("a list").push(Instant::now());
            let mut stream = stream.expect("a connection");
            let _ = stream.write_all(say);
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    let identity =
        |vehicle| json!({"deviceType": "automotive", "adb": {"access": "open"}, "vehicle": vehicle});
    let agent = Agent::start(&identity(json!(address.to_string())));
    let mut control = agent.control();

    eventually("seven attempts", || (calls.lock().expect("a list").len() >= 7).then_some(()));

    let times = calls.lock().expect("a list").clone();
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] < gaps[5] && gaps[5] >= Duration::from_secs(2), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap < Duration::from_secs(10)), "{gaps:?}");
    let health = control.ask(json!({"op": "health", "properties": true}));
    assert_eq!(health["ok"]["vehicle"], "connecting");
    assert_eq!(health["ok"]["properties"]["sys.vehicle.connected"], "0");

    // A resume may leave the car out: then there is none any more.
    let told = control.ask(json!({"op": "resume", "identity": identity(json!(null))}));
    assert_eq!(told["ok"]["ready"], true, "{told}");
    assert_eq!(control.ask(json!({"op": "health"}))["ok"]["vehicle"], "absent");
    let before = calls.lock().expect("a list").len();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(calls.lock().expect("a list").len(), before);

    // One that is wrong is refused, and one that is right is gone to at once.
    let wrong = control.ask(json!({"op": "resume", "identity": identity(json!("nowhere"))}));
    assert!(wrong["error"]["message"].is_string(), "{wrong}");
    control.ask(json!({"op": "resume", "identity": identity(json!(address.to_string()))}));
    eventually("another attempt", || (calls.lock().expect("a list").len() > before).then_some(()));
}

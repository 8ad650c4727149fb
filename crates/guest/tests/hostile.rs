//! Peers that break the protocol: they are dropped, and nobody else notices.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use world::{Adb, Agent, noise};

fn packet(command: &[u8; 4], arg0: u32, arg1: u32, data: &[u8]) -> Vec<u8> {
    let word = u32::from_le_bytes(*command);
    let sum = data.iter().fold(0u32, |sum, byte| sum.wrapping_add(u32::from(*byte)));
    let words = [word, arg0, arg1, data.len() as u32, sum, !word];
    words.iter().flat_map(|word| word.to_le_bytes()).chain(data.iter().copied()).collect()
}

fn hello() -> Vec<u8> {
    packet(b"CNXN", 0x0100_0001, 1 << 20, b"host::\0")
}

/// Says everything and waits until the device hangs up; what it said meanwhile.
fn until_dropped(agent: &Agent, said: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", agent.port)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    // The device may hang up before everything is said.
    let _ = stream.write_all(said);
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Ok(_) => heard,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => heard,
        Err(error) => panic!("not dropped: {error}; heard {} bytes", heard.len()),
    }
}

fn assert_alive(agent: &Agent) {
    let mut adb = Adb::new();
    adb.connect(agent.port);
    assert_eq!(adb.shell("echo alive"), "alive");
}

#[test]
fn a_stranger_that_does_not_follow_the_protocol_is_dropped() {
    let known = Adb::new();
    let agent = Agent::start(&json!({"adb": {"access": "keys", "keys": [known.key()]}}));
    let mut too_long = packet(b"CNXN", 0x0100_0001, 1 << 20, b"");
    too_long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    for (what, said) in [
        ("noise", noise(5000)),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: device\r\n\r\n".to_vec()),
        ("no hello", packet(b"OPEN", 1, 0, b"shell:id\0")),
        ("a payload of 4 GiB", too_long),
        ("a service before the key", [hello(), packet(b"OPEN", 1, 0, b"shell:id\0")].concat()),
        ("data before the key", [hello(), packet(b"WRTE", 1, 1, b"x")].concat()),
        ("a wrong signature, many times", [hello(), packet(b"AUTH", 2, 0, &[7; 256]).repeat(40)].concat()),
        ("signatures of other lengths", [hello(), packet(b"AUTH", 2, 0, &[7; 3]).repeat(40)].concat()),
    ] {
        let heard = until_dropped(&agent, &said);
        assert!(!heard.windows(4).any(|word| word == b"CNXN"), "{what} got in");
    }
}

#[test]
fn a_guest_that_does_not_follow_the_protocol_is_dropped() {
    let agent = Agent::open();
    for (what, said) in [
        ("a second hello", hello()),
        ("a payload over what was agreed", packet(b"WRTE", 1, 1, &vec![0; 300_000])),
        ("a broken magic", vec![0xff; 24]),
        (
            "data before the last was taken",
            [packet(b"OPEN", 9, 0, b"shell:sleep 60\0"), packet(b"WRTE", 9, 1, &vec![0; 200_000]).repeat(3)]
                .concat(),
        ),
    ] {
        let heard = until_dropped(&agent, &[hello(), said].concat());
        assert!(heard.starts_with(b"CNXN"), "{what}: never in");
    }
    assert_alive(&agent);
}

#[test]
fn streams_and_services_that_do_not_exist_are_refused_and_the_connection_goes_on() {
    let agent = Agent::open();
    let mut stream = TcpStream::connect(("127.0.0.1", agent.port)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let odd = [
        packet(b"OKAY", 77, 78, b""),
        packet(b"CLSE", 77, 78, b""),
        packet(b"WRTE", 77, 78, b"to nobody"),
        packet(b"OPEN", 5, 0, b"nosuch:service\0"),
        packet(b"OPEN", 6, 0, b"\xff\xfe\0"),
        packet(b"OPEN", 7, 0, b""),
        packet(b"OPEN", 0, 0, b"shell:id\0"),
        packet(b"OPEN", 8, 0, b"tcp:1\0"),
        packet(b"OPEN", 9, 0, b"tcp:notaport\0"),
    ];
    stream
        .write_all(&[hello(), odd.concat(), packet(b"OPEN", 10, 0, b"exec:echo fine\0")].concat())
        .expect("said");

    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    while !heard.windows(5).any(|word| word == b"fine\n") {
        let length = stream.read(&mut buffer).expect("an answer");
        assert!(length > 0, "dropped");
        heard.extend_from_slice(&buffer[..length]);
    }
}

#[test]
fn one_connection_cannot_have_streams_without_end() {
    let agent = Agent::open();
    let mut stream = TcpStream::connect(("127.0.0.1", agent.port)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let many: Vec<u8> = (1..=200).flat_map(|id| packet(b"OPEN", id, 0, b"sync:\0")).collect();
    stream.write_all(&[hello(), many].concat()).expect("said");

    let (mut accepted, mut refused) = (0, 0);
    let mut header = [0; 24];
    while accepted + refused < 200 {
        stream.read_exact(&mut header).expect("an answer");
        let length = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
        stream.read_exact(&mut vec![0; length]).expect("a payload");
        match &header[..4] {
            b"OKAY" => accepted += 1,
            b"CLSE" => refused += 1,
            _ => {}
        }
    }

    assert_eq!((accepted, refused), (128, 72));
}

#[test]
fn connections_without_end_are_refused_and_those_that_left_make_room() {
    let agent = Agent::open();
    let crowd: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(("127.0.0.1", agent.port)).expect("a connection")).collect();

    drop(crowd);

    world::eventually("room", || {
        let mut adb = Adb::new();
        adb.connect(agent.port).starts_with("connected").then_some(())
    });
}

/// Good conversations with one damaged byte each, from a seed, so that a failure can be repeated.
#[test]
fn damaged_conversations_never_end_the_agent() {
    let agent = Agent::open();
    let good = [
        hello(),
        packet(b"OPEN", 1, 0, b"shell,v2,raw:cat\0"),
        packet(b"WRTE", 1, 1, b"\0\x05\0\0\0hello\x05\x0d\0\0\x0024x80,0x0\0\x04\0\0\0\0"),
        packet(b"OPEN", 2, 0, b"sync:\0"),
        packet(
            b"WRTE",
            2,
            2,
            b"LIS2\x01\0\0\0/STA2\x01\0\0\0/SEND\x08\0\0\0/f,33188DATA\x01\0\0\0xDONE\0\0\0\0",
        ),
        packet(b"OPEN", 3, 0, b"reverse:forward:tcp:0;tcp:1\0"),
        packet(b"CLSE", 1, 1, b""),
    ]
    .concat();
    let random = noise(1600);
    for pair in random.chunks_exact(8) {
        let mut said = good.clone();
        let at = usize::from(u16::from_le_bytes([pair[0], pair[1]])) % said.len();
        said[at] = pair[2];
        if pair[3] > 200 {
            said.truncate(usize::from(u16::from_le_bytes([pair[4], pair[5]])) % good.len());
        }
        let mut stream = TcpStream::connect(("127.0.0.1", agent.port)).expect("a connection");
        let _ = stream.write_all(&said);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
        let _ = stream.read(&mut [0; 4096]);
    }

    world::eventually("room", || {
        let mut adb = Adb::new();
        adb.connect(agent.port).starts_with("connected").then_some(())
    });
    assert_alive(&agent);
}

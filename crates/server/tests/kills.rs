//! The daemon is killed at every step of a device's life, and its devices too: in the end everything is as wanted, and
//! nothing is left of what is not.

mod daemon;
mod yard;

use std::time::Instant;

use yard::Data;
use yard::kills::{Casualties, EMULATORS, Until, World, delete, deploy, restart, steps_by};

#[tokio::test]
async fn deploying_and_deleting_survive_a_kill_at_every_step() {
    let data = Data::new();
    let mut world = World::new(&data, &[]).await;
    let (mut deploying, mut deleting, mut kills) = (true, true, 0);
    let begun = Instant::now();
    for (round, steps) in steps_by(4).enumerate() {
        if !deploying && !deleting {
            break;
        }
        let power_cut = round % 4 == 3;
        world.casualties = if power_cut { Casualties::All } else { Casualties::None };
        let act = deploy(&world.tenant);
        let (made, killed) =
            world.ask(if deploying { steps } else { i64::MAX }, &act, Until::Status("running")).await;
        kills += u32::from(killed);
        if deploying && !killed {
            println!("a deploy has less than {steps} steps");
            deploying = false;
        }
        let id = made["id"].as_str().expect("an id").to_owned();
        world.made.insert(id.clone());
        if killed && power_cut {
            world.runs_or_failed(&id).await;
        } else {
            world.runs(&id, 1, round % 16 == 0).await;
        }
        let listed = world.yard.call("GET", EMULATORS, None).await;
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{}", world.kills.last());
        let (_, killed) = world
            .ask(if deleting { steps } else { i64::MAX }, &delete(&id), Until::Status("terminated"))
            .await;
        kills += u32::from(killed);
        if deleting && !killed {
            println!("a delete has less than {steps} steps");
            deleting = false;
        }
        world.yard.until(&id, "terminated").await;
        world.is_clean().await;
    }
    println!("{kills} kills in {:?}", begun.elapsed());
}

#[tokio::test]
async fn restarting_survives_a_kill_of_the_daemon_at_every_step_and_of_the_device_besides() {
    let data = Data::new();
    let mut world = World::new(&data, &[]).await;
    let (made, _) = world.ask(i64::MAX, &deploy(&world.tenant), Until::Status("running")).await;
    let id = made["id"].as_str().expect("an id").to_owned();
    world.made.insert(id.clone());
    let mut kills = 0;
    for (incarnation, steps) in (2..).zip(steps_by(4)) {
        // In most rounds the device is killed before it is up: then the restart has nothing to stop.
        if incarnation % 8 != 1 {
            world.kill_devices(&id);
            world.yard.until(&id, "failed").await;
        }
        let (answer, killed) = world.ask(steps, &restart(&id), Until::Status("running")).await;
        assert_eq!(answer["incarnation"], incarnation, "{}", world.kills.last());
        world.runs(&id, incarnation, incarnation % 8 == 0).await;
        if !killed {
            println!("a restart has less than {steps} steps");
            break;
        }
        kills += 1;
    }
    world.yard.sound();
    world.ask(i64::MAX, &delete(&id), Until::Status("terminated")).await;
    world.is_clean().await;
    println!("{kills} kills");
}

//! The device's side of the conversation with its car: connects, learns everything, stays, and comes back.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::grpc::{self, Messages, Refused, UNIMPLEMENTED};
use super::wire::{
    CONTINUOUS, CallStatus, Empty, OK, PropConfig, PropValue, PropValues, READ, STATIC, SubscribeOptions,
    SubscribeRequest, ValueRequest, ValueRequests, ValueResult, ValueResults,
};
use super::{CONNECTED, Known, Link, names};
use crate::device::Device;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long the car may leave a question open.
const PATIENCE: Duration = Duration::from_secs(10);
/// A car that has not taken up the stream of values by then does so with the first value.
const TAKEN_UP: Duration = Duration::from_millis(500);
/// How often the car is asked for its health, as Android does.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// How often a value that moves all the time is shown anew.
const SHOWN_RATE: f32 = 5.0;
/// More than any car has.
const MAX_PROPERTIES: usize = 4096;
const MAX_AREAS: usize = 64;
/// As many values are asked for at once.
const BATCH: usize = 64;
/// A property of the device has room for so many bytes.
const MAX_SHOWN: usize = 1024;

/// What moves on the instrument cluster.
const MOVING: [i32; 1] = [names::PERF_VEHICLE_SPEED];

/// Keeps the device connected to its car for ever.
pub fn start(device: &Arc<Device>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let device = device.clone();
    std::thread::Builder::new()
        .name("vehicle".to_owned())
        .spawn(move || runtime.block_on(stay_connected(&device)))?;
    Ok(())
}

async fn stay_connected(device: &Device) {
    let vehicle = &device.vehicle;
    let mut told = vehicle.told.subscribe();
    let mut pause = FIRST_PAUSE;
    let mut said = String::new();
    loop {
        let address = *told.borrow_and_update();
        let Some(address) = address else {
            // It never ends: the device outlives this thread.
            let _ = told.changed().await;
            continue;
        };
        tokio::select! {
            outcome = converse(device, address) => {
                let was_connected = vehicle.link() == Link::Connected;
                lose(device);
                let why = outcome.err().map_or_else(|| "the car has ended the stream".to_owned(), |why| format!("{why:#}"));
                // A car that is not there yet would fill the log.
                if was_connected || said != why {
                    device.log.info("vehicle", &format!("no car: {why}"));
                    said = why;
                }
                if was_connected {
                    pause = FIRST_PAUSE;
                }
                tokio::select! {
                    () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                    _ = told.changed() => pause = FIRST_PAUSE,
                }
            }
            // After a resume from memory the connection leads nowhere, and the car is another one.
            _ = told.changed() => {
                lose(device);
                // What was being told while the host spoke.
                vehicle.lock().known = Known::default();
                pause = FIRST_PAUSE;
            }
        }
    }
}

/// What is known stays shown; that it is not fresh is shown too.
fn lose(device: &Device) {
    let is_told = device.vehicle.told.borrow().is_some();
    let mut state = device.vehicle.lock();
    state.car = None;
    state.link = if is_told { Link::Connecting } else { Link::Absent };
    drop(state);
    device.properties.assign(CONNECTED, "0");
}

/// From the connection to its end.
async fn converse(device: &Device, address: SocketAddr) -> Result<()> {
    // Held still for a capture: whoever goes on from there may be a clone, with another car.
    while device.freezer.is_frozen() {
        sleep(FIRST_PAUSE).await;
    }
    let stream = timeout(PATIENCE, TcpStream::connect(address)).await.context("connect in time")??;
    stream.set_nodelay(true)?;
    let (send, connection) =
        timeout(PATIENCE, h2::client::handshake(stream)).await.context("greet in time")??;
    let _connection = Ending(tokio::spawn(async move {
        let _ = connection.await;
    }));
    let car = Car(send);
    let configs = timeout(PATIENCE, car.configs()).await.context("hear of the properties in time")??;
    // Before anything is read, so that no change falls between.
    let mut values = car.values().await?;
    if let Ok(opened) = timeout(TAKEN_UP, values.opened()).await {
        opened?;
    }
    timeout(PATIENCE, car.subscribe(&configs)).await.context("subscribe in time")??;
    let read: Vec<_> = configs
        .iter()
        .flat_map(|config| config.areas().into_iter().map(move |area| (config, area)))
        .filter(|(config, area)| config.access_in(*area).is_some_and(|access| access & READ != 0))
        .map(|(config, area_id)| PropValue { prop: config.prop, area_id, ..PropValue::default() })
        .collect();
    learn(device, configs);
    for batch in read.chunks(BATCH) {
        let results = timeout(PATIENCE, car.get(batch.to_vec())).await.context("read in time")??;
        show(
            device,
            results
                .into_iter()
                .filter(|result| result.status == OK)
                .filter_map(|result| result.value)
                .collect(),
        );
    }
    {
        let mut state = device.vehicle.lock();
        state.link = Link::Connected;
        state.car = Some((Handle::current(), car.clone()));
    }
    device.properties.assign(CONNECTED, "1");
    device.log.info("vehicle", "the car is connected");
    tokio::select! {
        ended = follow(device, &mut values) => ended,
        sick = heartbeat(&car) => sick,
    }
}

async fn follow(device: &Device, values: &mut Messages) -> Result<()> {
    while let Some(PropValues { values }) = values.next().await? {
        show(device, values);
    }
    Ok(())
}

async fn heartbeat(car: &Car) -> Result<()> {
    loop {
        sleep(HEARTBEAT).await;
        let health = timeout(PATIENCE, car.health()).await.context("the car is silent")??;
        ensure!(health == OK, "the car is not well: status {health}");
    }
}

/// What the car has from now on; what it has no longer is forgotten.
fn learn(device: &Device, configs: Vec<PropConfig>) {
    let mut state = device.vehicle.lock();
    let known = &mut state.known;
    known.configs = configs.into_iter().map(|config| (config.prop, config)).collect();
    let configs = &known.configs;
    let has =
        |prop: &i32, area: &i32| configs.get(prop).is_some_and(|config| config.access_in(*area).is_some());
    known.values.retain(|(prop, area), _| has(prop, area));
    let shown: BTreeSet<_> = known.values.keys().map(|(prop, area)| names::shown_as(*prop, *area)).collect();
    drop(state);
    device.properties.retain(|name| !name.starts_with("vehicle.") || shown.contains(name));
}

fn show(device: &Device, values: Vec<PropValue>) {
    let news = device.vehicle.lock().known.take(values);
    for value in news {
        let mut text = names::text_of(&value);
        text.truncate(text.floor_char_boundary(MAX_SHOWN));
        device.properties.assign(&names::shown_as(value.prop, value.area_id), &text);
    }
}

/// Ends a task with whoever waits for it.
struct Ending(tokio::task::JoinHandle<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection to the car.
#[derive(Clone)]
pub struct Car(SendRequest<Bytes>);

fn path(method: &str) -> String {
    format!("/android.hardware.automotive.vehicle.proto.VehicleServer/{method}")
}

impl Car {
    async fn configs(&self) -> Result<Vec<PropConfig>> {
        let mut messages = grpc::call(&self.0, &path("GetAllPropertyConfig"), &Empty {}).await?;
        let mut configs: Vec<PropConfig> = Vec::new();
        while let Some(config) = messages.next::<PropConfig>().await? {
            if configs.len() == MAX_PROPERTIES || config.area_configs.len() > MAX_AREAS {
                bail!("more properties than a car has");
            }
            configs.push(config);
        }
        Ok(configs)
    }

    async fn values(&self) -> Result<Messages> {
        grpc::call(&self.0, &path("StartPropertyValuesStream"), &Empty {}).await
    }

    async fn health(&self) -> Result<i32> {
        let status: CallStatus = grpc::ask(&self.0, &path("CheckHealth"), &Empty {}).await?;
        Ok(status.status_code)
    }

    /// To everything that can change and be read. Cars before Android 15 know no subscriptions, and tell unasked.
    async fn subscribe(&self, configs: &[PropConfig]) -> Result<()> {
        let requests: Vec<_> = configs.iter().filter_map(subscription).collect();
        for batch in requests.chunks(BATCH) {
            let mut calls = Vec::new();
            for request in batch {
                calls.push(grpc::call(&self.0, &path("Subscribe"), request).await?);
            }
            for mut call in calls {
                match call.next::<CallStatus>().await {
                    // One property that cannot be had is no reason to do without the others.
                    Ok(_) => {}
                    Err(error) => match error.downcast_ref::<Refused>() {
                        Some(refused) if refused.code == UNIMPLEMENTED => return Ok(()),
                        _ => return Err(error),
                    },
                }
            }
        }
        Ok(())
    }

    /// Answers come in any order.
    pub async fn get(&self, wanted: Vec<PropValue>) -> Result<Vec<ValueResult>> {
        let answer: ValueResults = grpc::ask(&self.0, &path("GetValues"), &numbered(wanted)).await?;
        Ok(answer.results)
    }

    /// How it went, as Android counts it.
    pub async fn set(&self, value: PropValue) -> Result<i32> {
        let answer: ValueResults = grpc::ask(&self.0, &path("SetValues"), &numbered(vec![value])).await?;
        Ok(answer.results.first().context("the car answered with nothing")?.status)
    }
}

/// To a property in the areas that can be read; to none if it never changes.
fn subscription(config: &PropConfig) -> Option<SubscribeRequest> {
    let readable = |area: &i32| config.access_in(*area).is_some_and(|access| access & READ != 0);
    let area_ids: Vec<i32> = config.areas().into_iter().filter(readable).collect();
    (config.change_mode != STATIC && !area_ids.is_empty()).then(|| SubscribeRequest {
        options: Some(SubscribeOptions {
            prop_id: config.prop,
            area_ids,
            sample_rate: sample_rate(config),
            enable_variable_update_rate: true,
        }),
    })
}

fn numbered(values: Vec<PropValue>) -> ValueRequests {
    let request = |(number, value)| ValueRequest { request_id: number, value: Some(value) };
    ValueRequests { requests: (1..).zip(values).map(request).collect() }
}

/// A few times a second for what moves on the screen, as seldom as the car allows for the rest.
fn sample_rate(config: &PropConfig) -> f32 {
    if config.change_mode != CONTINUOUS {
        return 0.0;
    }
    let least = if config.min_sample_rate > 0.0 { config.min_sample_rate } else { 1.0 };
    let most = config.max_sample_rate.max(least);
    if MOVING.contains(&config.prop) { SHOWN_RATE.clamp(least, most) } else { least }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_that_the_car_allows() {
        let config = |prop, change_mode, min_sample_rate, max_sample_rate| PropConfig {
            prop,
            change_mode,
            min_sample_rate,
            max_sample_rate,
            ..PropConfig::default()
        };
        let speed = names::PERF_VEHICLE_SPEED;
        for (config, rate) in [
            (config(speed, CONTINUOUS, 1.0, 10.0), 5.0),
            (config(speed, CONTINUOUS, 1.0, 2.0), 2.0),
            (config(speed, CONTINUOUS, 0.0, 0.0), 1.0),
            (config(speed, CONTINUOUS, f32::NAN, f32::NAN), 1.0),
            (config(names::FUEL_LEVEL, CONTINUOUS, 0.5, 100.0), 0.5),
            (config(names::GEAR_SELECTION, 1, 1.0, 10.0), 0.0),
        ] {
            assert_eq!(sample_rate(&config), rate, "{config:?}");
        }
    }
}

//! The instrument cluster: what the car says, as a driver reads it. Each part is drawn anew only when what it shows has changed.

use super::canvas::{Area, Canvas, Colour, mix};
use super::home::{ACCENT, Face, SOFT, WHITE, fitting};
use crate::vehicle::{
    CURRENT_GEAR, DISTANCE_DISPLAY_UNITS, DOOR_POS, ENV_OUTSIDE_TEMPERATURE, EV_BATTERY_LEVEL, FUEL_LEVEL,
    FUEL_LEVEL_LOW, GEAR_SELECTION, HAZARD_LIGHTS_STATE, HEADLIGHTS_STATE, HVAC_TEMPERATURE_DISPLAY_UNITS,
    INFO_EV_BATTERY_CAPACITY, INFO_FUEL_CAPACITY, INFO_FUEL_TYPE, Known, Link, PARKING_BRAKE_ON,
    PERF_ODOMETER, PERF_VEHICLE_SPEED, RANGE_REMAINING, TURN_SIGNAL_STATE, VEHICLE_SPEED_DISPLAY_UNITS,
};

const TOP: Colour = 0x0005_080f;
const BOTTOM: Colour = 0x0011_1c2e;
const PANEL: Colour = 0x0018_2639;
const TRACK: Colour = 0x0024_3348;
const DIM: Colour = 0x003a_4a60;
const RED: Colour = 0x00ff_5a4f;
const AMBER: Colour = 0x00ff_b73d;

/// Values of Android's VehicleUnit.
const METRES_PER_SECOND: i32 = 0x01;
const MILES_PER_HOUR: i32 = 0x90;
const MILE: i32 = 0x24;
const FAHRENHEIT: i32 = 0x31;
const ELECTRIC: i32 = 10;
const RIGHT: i32 = 1;
const LEFT: i32 = 2;
const LIGHT_ON: i32 = 1;

/// Doors, the bonnet and the tailgate by their areas.
const DOORS: [i32; 6] = [0x1, 0x4, 0x10, 0x40, 0x1000_0000, 0x2000_0000];

/// What a driver is told, in the units of the display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruments {
    link: Link,
    speed: Option<i32>,
    scale: Scale,
    gear: &'static str,
    energy: Energy,
    range: Option<i32>,
    odometer: Option<i32>,
    distance: &'static str,
    /// Whether each of them is open.
    doors: [bool; 6],
    lights: bool,
    left: bool,
    right: bool,
    parking_brake: bool,
    outside: Option<(i32, &'static str)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    unit: &'static str,
    /// The end of the dial, and the steps that have a number.
    most: i32,
    step: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Energy {
    name: &'static str,
    percent: Option<i32>,
    low: bool,
}

impl Instruments {
    pub fn of(known: &Known, link: Link) -> Instruments {
        let (per_metre_per_second, scale) = match known.int(VEHICLE_SPEED_DISPLAY_UNITS, 0) {
            Some(METRES_PER_SECOND) => (1.0, Scale { unit: "m/s", most: 70, step: 10 }),
            Some(MILES_PER_HOUR) => (2.236_936_3, Scale { unit: "mph", most: 160, step: 20 }),
            _ => (3.6, Scale { unit: "km/h", most: 260, step: 40 }),
        };
        let (kilometres, distance) = match known.int(DISTANCE_DISPLAY_UNITS, 0) {
            Some(MILE) => (0.621_371_2, "mi"),
            _ => (1.0, "km"),
        };
        let turn = known.int(TURN_SIGNAL_STATE, 0).unwrap_or(0);
        let hazard = known.int(HAZARD_LIGHTS_STATE, 0) == Some(LIGHT_ON);
        let whole = |value: f32| value.round().clamp(-9_999_999.0, 9_999_999.0) as i32;
        Instruments {
            link,
            // Backward is negative, and a driver knows.
            speed: known
                .float(PERF_VEHICLE_SPEED)
                .map(|speed| whole(speed * per_metre_per_second).abs().min(999)),
            scale,
            gear: gear(known),
            energy: Energy::of(known),
            range: known.float(RANGE_REMAINING).map(|metres| whole(metres / 1000.0 * kilometres)),
            odometer: known.float(PERF_ODOMETER).map(|driven| whole(driven * kilometres)),
            distance,
            doors: DOORS.map(|door| known.int(DOOR_POS, door).is_some_and(|position| position != 0)),
            lights: known.int(HEADLIGHTS_STATE, 0) == Some(LIGHT_ON),
            left: hazard || turn & LEFT != 0,
            right: hazard || turn & RIGHT != 0,
            parking_brake: known.is_set(PARKING_BRAKE_ON),
            outside: known.float(ENV_OUTSIDE_TEMPERATURE).map(|celsius| {
                match known.int(HVAC_TEMPERATURE_DISPLAY_UNITS, 0) {
                    Some(FAHRENHEIT) => (whole(celsius * 1.8 + 32.0), "F"),
                    _ => (whole(celsius), "C"),
                }
            }),
        }
    }
}

/// What the lever says; in drive, nothing more: an automatic has its gears to itself.
fn gear(known: &Known) -> &'static str {
    let selected = known.int(GEAR_SELECTION, 0).or_else(|| known.int(CURRENT_GEAR, 0));
    match selected {
        Some(0x1) => "N",
        Some(0x2) => "R",
        Some(0x4) => "P",
        Some(0x8) => "D",
        Some(0x10) => "1",
        Some(0x20) => "2",
        Some(0x40) => "3",
        Some(0x80) => "4",
        Some(0x100) => "5",
        Some(0x200) => "6",
        Some(0x400) => "7",
        Some(0x800) => "8",
        Some(0x1000) => "9",
        _ => "-",
    }
}

impl Energy {
    /// The battery's of a car that burns nothing, otherwise the tank's.
    fn of(known: &Known) -> Energy {
        let fuels = known.ints(INFO_FUEL_TYPE);
        let burns = match fuels {
            [] => known.float(FUEL_LEVEL).is_some(),
            fuels => fuels.iter().any(|fuel| *fuel != ELECTRIC),
        };
        let (name, level, capacity) = if burns {
            ("FUEL", FUEL_LEVEL, INFO_FUEL_CAPACITY)
        } else {
            ("BATTERY", EV_BATTERY_LEVEL, INFO_EV_BATTERY_CAPACITY)
        };
        let percent = match (known.float(level), known.float(capacity)) {
            (Some(level), Some(capacity)) if capacity > 0.0 => {
                Some((level / capacity * 100.0).round().clamp(0.0, 100.0) as i32)
            }
            _ => None,
        };
        let low = (burns && known.is_set(FUEL_LEVEL_LOW)) || percent.is_some_and(|percent| percent <= 10);
        Energy { name, percent, low }
    }
}

/// A place on the screen and what is to be seen there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    area: Area,
    shows: Shows,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Shows {
    /// What lies between the other parts.
    Ground,
    Signal {
        left: bool,
        lit: bool,
    },
    Speed {
        speed: Option<i32>,
        scale: Scale,
    },
    Gear(&'static str),
    Telltale {
        name: &'static str,
        lit: bool,
        colour: Colour,
    },
    Clock {
        clock: String,
        date: String,
    },
    Outside(Option<(i32, &'static str)>),
    Doors([bool; 6]),
    Energy {
        energy: Energy,
        range: Option<i32>,
        distance: &'static str,
    },
    /// What is in front, or else how far the car has gone.
    Middle(String),
    Name {
        name: String,
        version: String,
        serial: String,
        link: Link,
    },
}

/// The picture as parts that lie side by side; the same scene gives the same parts in the same order.
pub fn parts(face: &Face, car: &Instruments, (width, height): (usize, usize)) -> Vec<Part> {
    // Drawn for 1280 times 720.
    let (width, height) = (width as i32, height as i32);
    let part = |left: i32, top: i32, right: i32, bottom: i32, shows| Part {
        area: Area {
            left: left * width / 1280,
            top: top * height / 720,
            right: right * width / 1280,
            bottom: bottom * height / 720,
        },
        shows,
    };
    let middle = face.front.clone().unwrap_or_else(|| match car.odometer {
        Some(driven) => format!("{driven} {}", car.distance),
        None => format!("-- {}", car.distance),
    });
    let doors = car.doors.contains(&true);
    let mut all = vec![
        part(0, 0, 1280, 720, Shows::Ground),
        part(50, 24, 170, 104, Shows::Signal { left: true, lit: car.left }),
        part(630, 24, 750, 104, Shows::Signal { left: false, lit: car.right }),
        part(120, 106, 680, 574, Shows::Speed { speed: car.speed, scale: car.scale }),
        part(240, 576, 560, 640, Shows::Gear(car.gear)),
        part(790, 24, 1100, 150, Shows::Clock { clock: face.clock.clone(), date: face.date.clone() }),
        part(1104, 24, 1250, 150, Shows::Outside(car.outside)),
        part(790, 160, 1010, 480, Shows::Doors(car.doors)),
        part(
            1020,
            160,
            1250,
            480,
            Shows::Energy { energy: car.energy, range: car.range, distance: car.distance },
        ),
        part(790, 490, 1250, 560, Shows::Middle(middle)),
        part(
            790,
            570,
            1250,
            712,
            Shows::Name {
                name: face.name.clone(),
                version: face.version.clone(),
                serial: face.serial.clone(),
                link: car.link,
            },
        ),
    ];
    let telltales = [
        ("BRAKE", car.parking_brake, RED),
        ("DOOR", doors, RED),
        (if car.energy.name == "FUEL" { "FUEL" } else { "CHARGE" }, car.energy.low, AMBER),
        ("LIGHTS", car.lights, ACCENT),
    ];
    for ((name, lit, colour), left) in telltales.into_iter().zip((60..).step_by(172)) {
        all.push(part(left, 654, left + 160, 704, Shows::Telltale { name, lit, colour }));
    }
    all
}

/// Draws the parts that differ from those that the canvas shows; says where they are.
pub fn draw(canvas: &mut Canvas, shown: &[Part], parts: &[Part]) -> Vec<Area> {
    // Another screen altogether: nothing of it can stay.
    let shown = if shown.first() == parts.first() { shown } else { &[] };
    let mut changed = Vec::new();
    for (_, part) in parts.iter().enumerate().filter(|(index, part)| shown.get(*index) != Some(part)) {
        canvas.stay_within(part.area);
        canvas.fill(TOP, BOTTOM);
        part.shows.draw(canvas, part.area);
        changed.push(part.area);
    }
    canvas.stay_within(canvas.whole());
    changed
}

impl Shows {
    fn draw(&self, canvas: &mut Canvas, area: Area) {
        let (middle, centre) = area.centre();
        // As if the screen had 720 lines.
        let height = canvas.height as i32;
        let scaled = |length: i32| length * height / 720;
        match self {
            Shows::Ground => {}
            Shows::Signal { left, lit } => signal(canvas, area, *left, if *lit { ACCENT } else { TRACK }),
            Shows::Speed { speed, scale } => dial(canvas, area, *speed, *scale),
            Shows::Gear(gear) => gears(canvas, area, gear),
            Shows::Telltale { name, lit, colour } => {
                let (ground, text) = if *lit { (mix(BOTTOM, *colour, 70), *colour) } else { (PANEL, DIM) };
                canvas.panel((area.left, area.top), (area.width(), area.height()), scaled(16), ground);
                canvas.text((middle, centre - scaled(12)), scaled(24), name, text);
            }
            Shows::Clock { clock, date } => {
                canvas.text((middle, area.top), scaled(84), clock, WHITE);
                let size = fitting(date, scaled(24), area.width());
                canvas.text((middle, area.bottom - scaled(30)), size, date, SOFT);
            }
            Shows::Outside(outside) => {
                canvas.text((middle, area.bottom - scaled(30)), scaled(20), "outside", SOFT);
                let text = outside.map_or("--".to_owned(), |(degrees, _)| degrees.to_string());
                let unit = outside.map_or("", |(_, unit)| unit);
                let top = area.top + scaled(22);
                canvas.text((middle - scaled(18), top), scaled(48), &text, WHITE);
                if !unit.is_empty() {
                    // The font has no sign for degrees.
                    let right = middle - scaled(18) + text.len() as i32 * scaled(48) / 4 + scaled(8);
                    canvas.arc((right, top + scaled(10)), (scaled(3), scaled(6)), (-180.0, 180.0), SOFT);
                    canvas.text((right + scaled(20), top + scaled(4)), scaled(28), unit, SOFT);
                }
            }
            Shows::Doors(doors) => body(canvas, area, *doors),
            Shows::Energy { energy, range, distance } => gauge(canvas, area, *energy, *range, distance),
            Shows::Middle(text) => {
                canvas.panel((area.left, area.top), (area.width(), area.height()), scaled(20), PANEL);
                let size = fitting(text, scaled(32), area.width() - scaled(40));
                canvas.text((middle, centre - size / 2), size, text, WHITE);
            }
            Shows::Name { name, version, serial, link } => {
                let size = fitting(name, scaled(32), area.width());
                canvas.text((middle, area.top), size, name, WHITE);
                let kind = format!("Android {version} Automotive");
                canvas.text((middle, area.top + scaled(42)), scaled(24), &kind, ACCENT);
                canvas.text((middle, area.top + scaled(74)), scaled(20), serial, SOFT);
                let (colour, text) = match link {
                    Link::Connected => (ACCENT, "car connected"),
                    Link::Connecting => (AMBER, "waiting for the car"),
                    Link::Absent => (DIM, "no car"),
                };
                canvas.text((middle + scaled(10), area.top + scaled(106)), scaled(20), text, colour);
                let half = text.len() as i32 * scaled(20) / 4;
                canvas.disc((middle - half - scaled(8), area.top + scaled(116)), scaled(6), colour);
            }
        }
    }
}

fn signal(canvas: &mut Canvas, area: Area, left: bool, colour: Colour) {
    let (x, y) = area.centre();
    let (half, tall) = (area.width() * 4 / 10, area.height() * 4 / 10);
    let side = if left { -1 } else { 1 };
    let mut head = [(x, y - tall), (x + side * half, y), (x, y + tall)];
    if left {
        head.reverse();
    }
    canvas.polygon(&head, colour);
    // Over the head's edge, so that nothing shines through between the two.
    let from = if left { x - 2 } else { x - half };
    canvas.panel((from, y - tall / 2), (half + 2, tall), 0, colour);
}

fn dial(canvas: &mut Canvas, area: Area, speed: Option<i32>, scale: Scale) {
    let (x, y) = (area.centre().0, area.top + area.height() * 57 / 100);
    let radius = area.height() * 55 / 100;
    let thick = radius / 11;
    let angle = |value: i32| -135.0 + 270.0 * value.min(scale.most) as f32 / scale.most as f32;
    canvas.arc((x, y), (radius - thick, radius), (-135.0, 135.0), TRACK);
    let shown = speed.unwrap_or(0);
    if shown > 0 {
        let colour = if shown >= scale.most { RED } else { ACCENT };
        canvas.arc((x, y), (radius - thick, radius), (-135.0, angle(shown)), colour);
    }
    for value in (0..=scale.most).step_by(scale.step as usize) {
        let (sine, cosine) = angle(value).to_radians().sin_cos();
        let far = (radius - thick - radius / 8) as f32;
        let at = (x + (sine * far) as i32, y - (cosine * far) as i32 - radius / 22);
        canvas.text(at, radius / 11, &value.to_string(), SOFT);
    }
    let text = speed.map_or("--".to_owned(), |speed| speed.to_string());
    canvas.text((x, y - radius * 38 / 100), radius * 6 / 10, &text, WHITE);
    canvas.text((x, y + radius * 28 / 100), radius / 8, scale.unit, SOFT);
}

fn gears(canvas: &mut Canvas, area: Area, gear: &str) {
    let (middle, centre) = area.centre();
    let forward = if ["P", "R", "N", "-"].contains(&gear) { "D" } else { gear };
    for (letter, place) in ["P", "R", "N", forward].into_iter().zip([-3, -1, 1, 3]) {
        let x = middle + place * area.width() / 8;
        let half = area.height() / 2;
        if letter == gear {
            canvas.panel((x - half, area.top), (2 * half, area.height()), half / 2, ACCENT);
        }
        let colour = if letter == gear { TOP } else { DIM };
        canvas.text((x, centre - half * 3 / 4), half * 3 / 2, letter, colour);
    }
}

/// The car from above, its nose at the top; what is open sticks out and is red.
fn body(canvas: &mut Canvas, area: Area, doors: [bool; 6]) {
    let (x, y) = area.centre();
    let (half, tall) = (area.width() * 22 / 100, area.height() * 42 / 100);
    canvas.panel((x - half, y - tall), (2 * half, 2 * tall), half, TRACK);
    canvas.panel((x - half * 8 / 10, y - tall / 2), (half * 16 / 10, tall * 5 / 10), half / 3, 0x000b_1422);
    canvas.panel(
        (x - half * 8 / 10, y + tall * 35 / 100),
        (half * 16 / 10, tall * 3 / 10),
        half / 3,
        0x000b_1422,
    );
    let reach = half * 9 / 10;
    let thick = (tall / 12).max(3);
    for (open, side, top) in [
        (doors[0], -1, y - tall * 4 / 10),
        (doors[1], 1, y - tall * 4 / 10),
        (doors[2], -1, y + tall / 10),
        (doors[3], 1, y + tall / 10),
    ] {
        let long = tall * 4 / 10;
        if open {
            let (hinge, edge) = (x + side * half, x + side * (half + reach));
            let mut door = [
                (hinge, top),
                (edge, top + long / 2),
                (edge - side, top + long / 2 + thick),
                (hinge, top + thick * 2),
            ];
            if side < 0 {
                door.reverse();
            }
            canvas.polygon(&door, RED);
        } else {
            let left = if side < 0 { x - half - thick / 2 } else { x + half - thick / 2 };
            canvas.panel((left, top), (thick, long), thick / 2, DIM);
        }
    }
    let wide = half;
    for (open, closed, opened) in
        [(doors[4], y - tall + thick, y - tall - thick), (doors[5], y + tall - 2 * thick, y + tall)]
    {
        let (top, colour) = if open { (opened, RED) } else { (closed, DIM) };
        canvas.panel((x - wide / 2, top), (wide, thick), thick / 2, colour);
    }
}

fn gauge(canvas: &mut Canvas, area: Area, energy: Energy, range: Option<i32>, distance: &str) {
    let middle = area.centre().0;
    let unit = area.height() / 32;
    canvas.panel((area.left, area.top), (area.width(), area.height()), 2 * unit, PANEL);
    let colour = if energy.low { AMBER } else { ACCENT };
    canvas.text((middle, area.top + 2 * unit), 5 * unit / 2, energy.name, SOFT);
    let percent = energy.percent.map_or("--".to_owned(), |percent| format!("{percent}%"));
    canvas.text((middle, area.top + 6 * unit), 6 * unit, &percent, WHITE);
    let (left, width) = (area.left + 2 * unit, area.width() - 4 * unit);
    let top = area.top + 14 * unit;
    canvas.panel((left, top), (width, 3 * unit), unit, TRACK);
    let full = width * energy.percent.unwrap_or(0) / 100;
    if full >= 2 * unit {
        canvas.panel((left, top), (full, 3 * unit), unit, colour);
    }
    canvas.text((middle, area.top + 20 * unit), 5 * unit / 2, "RANGE", SOFT);
    let range = range.map_or("--".to_owned(), |range| range.to_string());
    canvas.text((middle, area.top + 24 * unit), 4 * unit, &format!("{range} {distance}"), WHITE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vehicle::{PropValue, value_of};

    fn known(values: &[(i32, i32, &str)]) -> Known {
        let value = |(prop, area, text): &(i32, i32, &str)| -> ((i32, i32), PropValue) {
            ((*prop, *area), value_of(*prop, *area, text).expect("a value"))
        };
        Known { values: values.iter().map(value).collect(), ..Known::default() }
    }

    fn seen(values: &[(i32, i32, &str)]) -> Instruments {
        Instruments::of(&known(values), Link::Connected)
    }

    fn face() -> Face {
        Face {
            name: "A car".to_owned(),
            serial: "PDK1".to_owned(),
            version: "14".to_owned(),
            clock: "12:34".to_owned(),
            date: "Monday, 2024-01-01".to_owned(),
            apps: Vec::new(),
            front: None,
        }
    }

    #[test]
    fn speed_and_distance_are_in_the_units_of_the_display() {
        for (unit, speed, shown) in [
            ("0x91", "27.8", "100 km/h"),
            ("0x90", "27.8", "62 mph"),
            ("1", "27.8", "28 m/s"),
            ("0x91", "-2", "7 km/h"),
        ] {
            let car = seen(&[(VEHICLE_SPEED_DISPLAY_UNITS, 0, unit), (PERF_VEHICLE_SPEED, 0, speed)]);
            assert_eq!(format!("{} {}", car.speed.expect("a speed"), car.scale.unit), shown);
        }
        let car = seen(&[(RANGE_REMAINING, 0, "50000"), (DISTANCE_DISPLAY_UNITS, 0, "0x24")]);
        assert_eq!((car.range, car.distance, car.speed), (Some(31), "mi", None));
        let outside = |unit| {
            seen(&[(ENV_OUTSIDE_TEMPERATURE, 0, "25"), (HVAC_TEMPERATURE_DISPLAY_UNITS, 0, unit)]).outside
        };
        assert_eq!((outside("0x31"), outside("0x30")), (Some((77, "F")), Some((25, "C"))));
    }

    #[test]
    fn what_drives_the_car_has_its_gauge() {
        let tank = [(FUEL_LEVEL, 0, "3000"), (INFO_FUEL_CAPACITY, 0, "15000")];
        let battery = [(EV_BATTERY_LEVEL, 0, "7500"), (INFO_EV_BATTERY_CAPACITY, 0, "150000")];
        let both = |fuels| seen(&[&tank[..], &battery, &[(INFO_FUEL_TYPE, 0, fuels)]].concat()).energy;
        assert_eq!(both("1"), Energy { name: "FUEL", percent: Some(20), low: false });
        assert_eq!(both("1,10"), Energy { name: "FUEL", percent: Some(20), low: false });
        assert_eq!(both("10"), Energy { name: "BATTERY", percent: Some(5), low: true });
        assert_eq!(seen(&[]).energy, Energy { name: "BATTERY", percent: None, low: false });
    }

    #[test]
    fn a_change_is_drawn_where_it_is_to_be_seen_and_nowhere_else() {
        let still = seen(&[]);
        let size = (1280, 720);
        let before = parts(&face(), &still, size);
        let mut canvas = Canvas::new(size.0, size.1);
        assert_eq!(draw(&mut canvas, &[], &before).len(), before.len());
        for (change, places) in [
            (vec![], 0),
            (vec![(PERF_VEHICLE_SPEED, 0, "20")], 1),
            (vec![(GEAR_SELECTION, 0, "8")], 1),
            (vec![(TURN_SIGNAL_STATE, 0, "2")], 1),
            (vec![(HAZARD_LIGHTS_STATE, 0, "1")], 2),
            // The door itself and its light.
            (vec![(DOOR_POS, 0x10, "1")], 2),
            (vec![(PARKING_BRAKE_ON, 0, "1")], 1),
            (vec![(HEADLIGHTS_STATE, 0, "1")], 1),
            (vec![(ENV_OUTSIDE_TEMPERATURE, 0, "-5")], 1),
            (vec![(PERF_ODOMETER, 0, "12345.6")], 1),
        ] {
            let pixels = canvas.pixels.clone();
            let after = parts(&face(), &seen(&change), size);
            let areas = draw(&mut canvas, &before, &after);
            assert_eq!(areas.len(), places, "{change:?}");
            for area in &areas {
                let row = |y: i32| (y * 1280 + area.left) as usize..(y * 1280 + area.right) as usize;
                let differs = |y: i32| canvas.pixels[row(y)] != pixels[row(y)];
                assert!((area.top..area.bottom).any(differs), "{change:?} is not to be seen");
            }
            let mut whole = Canvas::new(size.0, size.1);
            draw(&mut whole, &[], &after);
            assert!(whole.pixels == canvas.pixels, "{change:?} drawn in parts and at once");
            // Back to where it was.
            draw(&mut canvas, &after, &before);
            assert!(canvas.pixels == pixels, "{change:?} left something behind");
        }
    }

    #[test]
    fn parts_lie_side_by_side_on_every_screen() {
        for size in [(1280, 720), (1920, 1080), (720, 1280), (64, 64)] {
            let all = parts(&face(), &seen(&[(PERF_VEHICLE_SPEED, 0, "400")]), size);
            for (index, one) in all.iter().enumerate().skip(1) {
                for other in &all[index + 1..] {
                    let (a, b) = (one.area, other.area);
                    let apart =
                        a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
                    assert!(apart, "{one:?} and {other:?}");
                }
            }
            draw(&mut Canvas::new(size.0, size.1), &[], &all);
        }
    }
}

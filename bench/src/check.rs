//! May I? Asked of Paddock over HTTP and of a SpiceDB in its own process, with the same model, tuples and questions.

use anyhow::{Context, Error, Result, ensure};
use paddock_model::permissions::schema::SCHEMA;
use paddock_model::permissions::tuples::{Thing, Tuple};
use serde_json::{Value, json};

use crate::figures::{Goal, Pairs, Row};
use crate::paddock::Paddock;
use crate::rights::{self, Question, RELATED};
use crate::spicedb::SpiceDb;
use crate::wrk::{Load, Outcome, Requests};
use crate::{Bench, http, relation_rows, spicedb_words};

const PATH: &str = "/api/v1/permissions/check";
/// SpiceDB does no more with more of them.
const AT_ONCE: u32 = 8;
/// For the time that an answer takes, where connections rest.
const AT_EASE: u32 = 4;
const BATCH: usize = 100;
/// Tuples that nobody asks for, behind those that are needed.
const UNRELATED: [(usize, &str); 3] = [(0, "1 k"), (100_000, "101 k"), (1_000_000, "1,001 k")];
/// As many tuples are told to SpiceDB at a time.
const PORTION: usize = 20_000;

pub fn run(bench: &Bench) -> Result<Vec<Row>> {
    let questions = rights::questions();
    let worlds = UNRELATED
        .map(|(unrelated, name)| World::filled(bench, name, RELATED + unrelated, &questions))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let mut worlds = worlds;

    let mut rows = Vec::new();
    for form in [Form::Single, Form::Batch] {
        rows.extend(throughput(bench, &mut worlds, form)?);
        rows.extend(latency(bench, &worlds, form)?);
    }
    Ok(rows)
}

/// A question a request, or a hundred.
#[derive(Clone, Copy)]
enum Form {
    Single,
    Batch,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Single => "check",
            Form::Batch => "check of 100",
        }
    }
}

/// Paddock and SpiceDB with the same tuples.
struct World {
    name: &'static str,
    paddock: Paddock,
    spicedb: SpiceDb,
    bodies: [Vec<String>; 2],
    /// The same, as SpiceDB wants them.
    requests: [Value; 2],
}

impl World {
    fn filled(bench: &Bench, name: &'static str, tuples: usize, questions: &[Question]) -> Result<Self> {
        eprintln!("  filling Paddock and SpiceDB with {tuples} tuples");
        let folder = format!("check-{tuples}");
        let paddock = Paddock::start(bench, &folder)?;
        let whoami = http::get(paddock.address, "/api/v1/whoami", &paddock.token()?)?;
        let whoami: Value = serde_json::from_str(&whoami.body)?;
        let person = Thing::new("user", whoami["id"].as_str().context("an identity has an id")?);
        relation_rows::give(&paddock.kill(), rights::tuples(&person).take(tuples))?;

        let mut spicedb = SpiceDb::start(&spicedb_words::model(&SCHEMA)).map_err(Error::msg)?;
        let all: Vec<Tuple> = rights::tuples(&person).take(tuples).collect();
        for portion in all.chunks(PORTION) {
            let given: Vec<String> =
                portion.iter().map(|tuple| spicedb_words::tuple(&SCHEMA, tuple)).collect();
            spicedb.change(&given, &[]).map_err(Error::msg)?;
        }
        drop(all);

        let one = |question: &Question| json!({ "relation": question.relation, "object": question.object.to_string() });
        let there = |question: &Question| format!("{}#{}@{person}", question.object, question.relation);
        let batches = || questions.chunks_exact(BATCH);
        let bodies = [
            questions.iter().map(|question| one(question).to_string()).collect(),
            batches()
                .map(|batch| json!({ "checks": batch.iter().map(one).collect::<Vec<_>>() }).to_string())
                .collect(),
        ];
        let requests = [
            questions.iter().map(there).collect(),
            batches().map(|batch| batch.iter().map(there).collect::<Vec<_>>()).collect::<Vec<_>>().into(),
        ];
        let paddock = Paddock::start(bench, &folder)?;
        let mut world = World { name, paddock, spicedb, bodies, requests };
        let questions: Vec<String> = questions.iter().map(there).collect();
        world.ensure_same_answers(&questions)?;
        Ok(world)
    }

    /// Else it would be no comparison.
    fn ensure_same_answers(&mut self, questions: &[String]) -> Result<()> {
        let theirs = self.spicedb.check(questions).map_err(Error::msg)?;
        let token = self.paddock.token()?;
        let mut ours = Vec::new();
        for body in &self.bodies[Form::Batch as usize] {
            let answer: Value =
                serde_json::from_str(&http::post(self.paddock.address, PATH, &token, body)?.body)?;
            for result in answer["results"].as_array().context("a batch has results")? {
                ensure!(result["error"].is_null(), "a question cannot be asked: {result}");
                ours.push(result["allowed"] == true);
            }
        }
        ensure!(ours == theirs, "Paddock and SpiceDB do not answer alike");
        let held = ours.iter().filter(|held| **held).count();
        ensure!(held * 4 > ours.len() && held * 4 < ours.len() * 3, "{held} of {} are held", ours.len());
        Ok(())
    }

    fn ours(&self, form: Form, connections: u32, rest_milliseconds: u64, seconds: u64) -> Result<Outcome> {
        Load {
            address: self.paddock.address,
            path: PATH,
            token: &self.paddock.token()?,
            connections,
            seconds,
            rest_milliseconds,
            requests: Requests::Posts { bodies: &self.bodies[form as usize] },
        }
        .run()
    }

    /// `fully`: as current as Paddock's answers always are, instead of some seconds old.
    fn theirs(&mut self, form: Form, fully: bool, seconds: u64) -> Result<Theirs> {
        let requests = &self.requests[form as usize];
        let wish = json!({ "wish": "load", "requests": requests, "atOnce": AT_ONCE, "seconds": seconds, "fully": fully });
        let outcome = self.spicedb.ask(&wish).map_err(Error::msg)?;
        let figure = |name: &str| outcome[name].as_f64().with_context(|| format!("SpiceDB tells no {name}"));
        Ok(Theirs {
            per_second: figure("perSecond")?,
            processor_microseconds: figure("processorMicroseconds")?,
        })
    }
}

struct Theirs {
    per_second: f64,
    /// Of one request, on all processors together.
    processor_microseconds: f64,
}

fn throughput(bench: &Bench, worlds: &mut [World], form: Form) -> Result<Vec<Row>> {
    let (mut rows, mut shapes) = (Vec::new(), Vec::new());
    // Of batches at the largest size SpiceDB answers less than one a second, and on a busy machine none in its time limit.
    let measured = worlds.len() - usize::from(matches!(form, Form::Batch));
    for (index, world) in worlds.iter_mut().take(measured).enumerate() {
        let (mut pairs, mut current, mut processor) = (Pairs::default(), Pairs::default(), Pairs::default());
        for _ in 0..bench.rounds {
            let before = world.paddock.processor_microseconds()?;
            let ours = world.ours(form, AT_ONCE, 0, bench.seconds)?;
            let spent = world.paddock.processor_microseconds()? - before;
            let theirs = world.theirs(form, false, bench.seconds)?;
            pairs.push(ours.per_second, theirs.per_second);
            processor.push(theirs.processor_microseconds, spent / ours.answers as f64);
            if index == 0 {
                let theirs = world.theirs(form, true, bench.short_seconds())?;
                current.push(ours.per_second, theirs.per_second);
            }
        }
        let (form, tuples) = (form.name(), world.name);
        let row = |name, pairs: &Pairs, goal, unit| Row {
            name,
            figures: pairs.ratios(),
            goal,
            note: pairs.note(unit),
        };
        rows.push(row(format!("{form} ÷ SpiceDB, {tuples} tuples"), &pairs, Some(Goal::AtLeast(50.0)), "/s"));
        if index == 0 {
            let name = format!("{form} ÷ SpiceDB fully consistent, {tuples}");
            shapes.push(row(name, &current, None, "/s"));
            let name = format!("{form}, processor time SpiceDB ÷ ours, {tuples}");
            shapes.push(row(name, &processor, None, "µs"));
        }
    }
    rows.extend(shapes);
    Ok(rows)
}

/// What many tuples cost that nobody asks for.
fn latency(bench: &Bench, worlds: &[World], form: Form) -> Result<Vec<Row>> {
    let (few, more) = worlds.split_first().context("there are worlds")?;
    let mut rows = Vec::new();
    for many in more {
        let (mut p99, mut p50) = (Pairs::default(), Pairs::default());
        for _ in 0..bench.rounds {
            let small = few.ours(form, AT_EASE, 1, bench.seconds)?;
            let large = many.ours(form, AT_EASE, 1, bench.seconds)?;
            p99.push(large.p99_microseconds, small.p99_microseconds);
            p50.push(large.p50_microseconds, small.p50_microseconds);
        }
        for (quantile, pairs, most) in [("p99", p99, 1.2), ("p50", p50, 1.1)] {
            rows.push(Row {
                name: format!("{} {quantile}, {} ÷ {} tuples", form.name(), many.name, few.name),
                figures: pairs.ratios(),
                goal: Some(Goal::AtMost(most)),
                note: pairs.note("µs"),
            });
        }
    }
    Ok(rows)
}

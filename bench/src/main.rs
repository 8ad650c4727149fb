//! Measures Paddock against its peers, interleaved in one run, and says which goals are met.

mod backup;
mod bridge;
mod check;
mod clone;
mod create;
mod crowd;
mod disk;
mod envoy;
mod errand;
mod fanout;
mod figures;
mod flush;
mod http;
mod idle;
mod lineage;
mod list;
mod machine;
mod nginx;
mod paddock;
mod read;
mod relation_rows;
mod retention;
mod rights;
mod snapshot_rows;
#[path = "../../crates/model/tests/spicedb/process.rs"]
mod spicedb;
#[path = "../../crates/model/tests/spicedb/translation.rs"]
mod spicedb_words;
mod sqlite;
mod start;
mod tenant_rows;
mod tree;
mod vehicle;
mod warm;
mod wrk;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use crate::errand::Errand;
use crate::figures::Row;

const USAGE: &str = "\
Measures Paddock against its peers, interleaved in one run.

Usage: paddock-bench [--only NAME] [--rounds N] [--seconds N] [--folder DIR]

  --only NAME    one of read, create, list, tree, check, idle, clone, lineage, start, warm, crowd, bridge, fanout, retention, backup, vehicle; may be given more than once [default: all]
  --rounds N     how often each pair is measured [default: 5]
  --seconds N    how long one measurement of a goal takes; rows without a goal take half [default: 2]
  --folder DIR   where data folders are made; must be a disk, not memory [default: /var/tmp]

The environment variable BENCH_PADDOCKD names another paddockd than bin/paddockd.
A missed goal is printed; the exit code tells only whether everything could be measured.";

type Benchmark = fn(&Bench) -> Result<Vec<Row>>;

const BENCHMARKS: &[(&str, Benchmark)] = &[
    ("read", read::run),
    ("create", create::run),
    ("list", list::run),
    ("tree", tree::run),
    ("check", check::run),
    ("idle", idle::run),
    ("clone", clone::run),
    ("lineage", lineage::run),
    ("start", start::run),
    ("warm", warm::run),
    ("crowd", crowd::run),
    ("bridge", bridge::run),
    ("fanout", fanout::run),
    ("retention", retention::run),
    ("backup", backup::run),
    ("vehicle", vehicle::run),
];

/// What every benchmark needs to know.
#[derive(Clone)]
pub struct Bench {
    rounds: usize,
    seconds: u64,
    paddockd: PathBuf,
    /// Gone after the run.
    folder: PathBuf,
}

impl Bench {
    /// How long one measurement takes where nothing is to be proven.
    fn short_seconds(&self) -> u64 {
        (self.seconds / 2).max(1)
    }

    /// An empty folder on the file system that is measured.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(folder)
    }
}

struct Arguments {
    only: Vec<String>,
    rounds: usize,
    seconds: u64,
    folder: PathBuf,
}

fn main() -> ExitCode {
    if let Err(error) = start::stand_in(&mut std::env::args_os()) {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if let Some(errand) = Errand::parse(&words) {
        return carry_out(&errand);
    }
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error:#}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nNOT MEASURED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One figure for the process that sent this one.
fn carry_out(errand: &Errand) -> ExitCode {
    match errand.run() {
        Ok(figure) => {
            println!("{figure}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<Arguments> {
    let mut arguments =
        Arguments { only: Vec::new(), rounds: 5, seconds: 2, folder: PathBuf::from("/var/tmp") };
    let mut words = words.iter();
    while let Some(option) = words.next() {
        let value = words.next().with_context(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--only" => arguments.only.push(value.clone()),
            "--rounds" => arguments.rounds = value.parse().context("--rounds is a number")?,
            "--seconds" => arguments.seconds = value.parse().context("--seconds is a number")?,
            "--folder" => arguments.folder = PathBuf::from(value),
            _ => bail!("there is no option {option}"),
        }
    }
    for name in &arguments.only {
        ensure!(BENCHMARKS.iter().any(|(known, _)| known == name), "there is no benchmark {name}");
    }
    ensure!((1..=1000).contains(&arguments.rounds), "--rounds is from 1 to 1000");
    // A token lives for 15 minutes, and a round uses one.
    ensure!((1..=120).contains(&arguments.seconds), "--seconds is from 1 to 120");
    Ok(arguments)
}

fn run(arguments: &Arguments) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let paddockd =
        std::env::var_os("BENCH_PADDOCKD").map_or_else(|| root.join("bin/paddockd"), PathBuf::from);
    let paddockd =
        paddockd.canonicalize().with_context(|| format!("find {} (`make build`)", paddockd.display()))?;
    let folder = tempfile::Builder::new().prefix("paddock-bench-").tempdir_in(&arguments.folder)?;
    let folder_path = folder.path().canonicalize()?;
    let bench = Bench { rounds: arguments.rounds, seconds: arguments.seconds, paddockd, folder: folder_path };

    for (fact, value) in machine::facts(&bench)? {
        println!("{fact:<12} {value}");
    }
    println!(
        "{:<12} {} interleaved, {} s a measurement ({} s where there is no goal)\n",
        "rounds",
        bench.rounds,
        bench.seconds,
        bench.short_seconds()
    );
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for (name, benchmark) in BENCHMARKS {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("measuring {name}");
        match benchmark(&bench) {
            Ok(measured) => rows.extend(measured),
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }

    print_table(&rows);
    let missed = rows.iter().filter(|row| row.met() == Some(false));
    for row in missed.clone() {
        println!("GOAL MISSED: {}: {} where {} is wanted", row.name, row.deciding(), row.goal_in_words());
    }
    if missed.count() == 0 && failures.is_empty() {
        println!("Every goal is met.");
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n              "));
    Ok(())
}

/// In Markdown, so that it can be kept as it is.
fn print_table(rows: &[Row]) {
    println!(
        "\n| {:<50} | {:>8} | {:>14} | {:>14} | {:>15} | {:>6} | {:<6} | medians behind it |",
        "benchmark", "median", "lower quartile", "upper quartile", "spread", "goal", "met"
    );
    println!(
        "|{:-<52}|{:->10}|{:->16}|{:->16}|{:->17}|{:->8}|{:-<8}|{:-<19}|",
        "", ":", ":", ":", ":", ":", "", ""
    );
    for row in rows {
        let [median, lower, upper, spread] = row.cells();
        println!(
            "| {:<50} | {median:>8} | {lower:>14} | {upper:>14} | {spread:>15} | {:>6} | {:<6} | {} |",
            row.name,
            row.goal_in_words(),
            row.met().map_or("", |met| if met { "yes" } else { "MISSED" }),
            row.note
        );
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_wrong_argument_is_refused() {
        for line in ["--rounds", "--rounds x", "--rounds 0", "--seconds 0", "--only write", "--fast yes"] {
            assert!(parse(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn arguments_change_what_is_measured() {
        let arguments = parse(&words("--only read --only idle --rounds 3 --seconds 4")).expect("understood");

        assert_eq!(arguments.only, ["read", "idle"]);
        assert_eq!((arguments.rounds, arguments.seconds), (3, 4));
    }
}

//! wrk, the load client of every party: one thread, so many connections, for so long.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// How much longer than asked a run may take before it is ended.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Load<'a> {
    pub address: SocketAddr,
    pub path: &'a str,
    pub token: &'a str,
    pub connections: u32,
    pub seconds: u64,
    /// How long a connection rests before it asks again, on average; zero saturates the server.
    pub rest_milliseconds: u64,
    pub requests: Requests<'a>,
}

pub enum Requests<'a> {
    Gets,
    /// Tenants named by this prefix and a number.
    Creates {
        prefix: &'a str,
    },
    /// These bodies of JSON, one after the other and again from the start.
    Posts {
        bodies: &'a [String],
    },
}

#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub answers: u64,
    pub per_second: f64,
    pub p50_microseconds: f64,
    pub p99_microseconds: f64,
}

/// wrk's own summary is rounded for people; this one is exact.
const TELL: &str = r#"
done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nOUTCOME {"answers":%d,"microseconds":%d,"p50":%f,"p99":%f,"refused":%d,"broken":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
"#;

impl Load<'_> {
    /// An answer that is no success, or a connection that broke, makes it an error.
    pub fn run(&self) -> Result<Outcome> {
        let mut script = tempfile::Builder::new().suffix(".lua").tempfile()?;
        script.write_all(self.script().as_bytes())?;
        let mut wrk = Command::new("wrk")
            .args(["-t1", "--timeout", "10s"])
            .arg(format!("-c{}", self.connections))
            .arg(format!("-d{}s", self.seconds))
            .arg("-s")
            .arg(script.path())
            .arg(format!("http://{}{}", self.address, self.path))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start wrk")?;
        let deadline = Instant::now() + Duration::from_secs(self.seconds) + PATIENCE;
        while wrk.try_wait()?.is_none() {
            if Instant::now() > deadline {
                wrk.kill()?;
                wrk.wait()?;
                bail!("wrk did not end in time");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = wrk.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        outcome(&said)
            .with_context(|| format!("{} connections to {}: {complaint}", self.connections, self.path))
    }

    fn script(&self) -> String {
        let token = self.token;
        // At random, since connections that rest equally long would all ask at the same moment.
        let rest = match self.rest_milliseconds {
            0 => String::new(),
            mean => format!("delay = function() return math.random(0, {}) end", 2 * mean),
        };
        let requests = match self.requests {
            Requests::Gets => String::new(),
            Requests::Creates { prefix } => format!(
                r#"
wrk.headers["Content-Type"] = "application/json"
local number = 0
request = function()
  number = number + 1
  return wrk.format("POST", nil, nil, '{{"name":"{prefix}' .. number .. '"}}')
end"#
            ),
            Requests::Posts { bodies } => {
                // Made once; while it measures, the client only picks the next.
                let bodies: Vec<String> = bodies.iter().map(|body| format!("[==[{body}]==]")).collect();
                format!(
                    r#"
wrk.headers["Content-Type"] = "application/json"
local bodies = {{ {} }}
local requests, number = {{}}, 0
init = function()
  for index, body in ipairs(bodies) do requests[index] = wrk.format("POST", nil, nil, body) end
end
request = function()
  number = number % #requests + 1
  return requests[number]
end"#,
                    bodies.join(", ")
                )
            }
        };
        format!("wrk.headers[\"Authorization\"] = \"Bearer {token}\"\n{rest}\n{requests}\n{TELL}")
    }
}

fn outcome(said: &str) -> Result<Outcome> {
    let line = said.lines().find_map(|line| line.strip_prefix("OUTCOME "));
    let told: Value = serde_json::from_str(line.with_context(|| format!("wrk told nothing: {said}"))?)?;
    let figure = |name: &str| told[name].as_f64().with_context(|| format!("wrk told no {name}"));
    let (answers, refused, broken) = (figure("answers")?, figure("refused")?, figure("broken")?);
    ensure!(
        refused == 0.0 && broken == 0.0,
        "of {answers} answers {refused} were errors, and {broken} connections broke or waited too long"
    );
    ensure!(answers > 0.0, "there was no answer at all");
    Ok(Outcome {
        answers: answers as u64,
        per_second: answers / figure("microseconds")? * 1e6,
        p50_microseconds: figure("p50")?,
        p99_microseconds: figure("p99")?,
    })
}

pub fn version() -> Result<String> {
    let output = Command::new("wrk").arg("-v").output().context("run wrk -v; is wrk installed?")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().next().unwrap_or_default();
    Ok(line.split(" Copyright").next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_read_from_what_wrk_says() {
        let said = "Running 2s test\nOUTCOME \
            {\"answers\":500,\"microseconds\":2000000,\"p50\":80.0,\"p99\":900.0,\"refused\":0,\"broken\":0}\n";

        let outcome = outcome(said).expect("an outcome");

        let expected =
            Outcome { answers: 500, per_second: 250.0, p50_microseconds: 80.0, p99_microseconds: 900.0 };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn a_run_with_errors_is_no_measurement() {
        for (answers, refused, broken) in [(500, 1, 0), (500, 0, 1), (0, 0, 0)] {
            let said = format!(
                "OUTCOME {{\"answers\":{answers},\"microseconds\":1000000,\"p50\":1,\"p99\":1,\
                 \"refused\":{refused},\"broken\":{broken}}}"
            );
            assert!(outcome(&said).is_err(), "{said}");
        }
    }
}

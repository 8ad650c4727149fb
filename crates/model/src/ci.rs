//! CI: what a job says of itself, what its device starts from, and what is captured of it when the job ends.

use serde::{Deserialize, Serialize};

use crate::labels::Labels;
use crate::slug::Slug;
use crate::trust::Trust;

/// What a caller says of its job. Nobody has looked whether it is so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobStatement {
    pub project: Option<String>,
    pub reference: Option<String>,
    pub ref_protected: Option<bool>,
    pub fork: Option<bool>,
    pub commit: Option<String>,
    pub job_id: Option<String>,
    pub target_branch: Option<String>,
    pub default_branch: Option<String>,
}

/// What is known of a job: proved by its credential, or as its caller states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobContext {
    pub project: Option<String>,
    /// The branch or tag that it runs for.
    pub reference: Option<String>,
    /// A statement may say no; only a proof says yes.
    pub ref_protected: Option<bool>,
    pub fork: bool,
    pub commit: Option<String>,
    pub job_id: Option<String>,
    /// Where a merge request would go.
    pub target_branch: Option<String>,
    pub default_branch: Option<String>,
    proved: bool,
}

/// What the issuer of a job's credential vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobProof {
    pub project: String,
    pub reference: String,
    pub ref_protected: bool,
    /// The code comes from a fork of the project.
    pub fork: bool,
    pub commit: Option<String>,
    pub job_id: Option<String>,
    pub target_branch: Option<String>,
    pub default_branch: Option<String>,
}

impl JobContext {
    /// For credentials of jobs alone: what is in it is believed.
    pub fn proved(proof: JobProof) -> Self {
        JobContext {
            project: Some(proof.project),
            reference: Some(proof.reference),
            ref_protected: Some(proof.ref_protected),
            fork: proof.fork,
            commit: proof.commit,
            job_id: proof.job_id,
            target_branch: proof.target_branch,
            default_branch: proof.default_branch,
            proved: true,
        }
    }

    pub fn stated(statement: JobStatement) -> Self {
        JobContext {
            project: statement.project,
            reference: statement.reference,
            ref_protected: statement.ref_protected.filter(|protected| !protected),
            fork: statement.fork == Some(true),
            commit: statement.commit,
            job_id: statement.job_id,
            target_branch: statement.target_branch,
            default_branch: statement.default_branch,
            proved: false,
        }
    }

    /// What is known once the caller has spoken, too: it may say less of its job and add what the proof leaves open. Otherwise
    /// the members in which it contradicts the proof.
    pub fn with_statement(self, statement: JobStatement) -> Result<Self, Vec<&'static str>> {
        if !self.proved {
            return Ok(JobContext::stated(statement));
        }
        let told = |proved: &Option<String>, stated: &Option<String>| {
            proved.is_some() && stated.is_some() && proved != stated
        };
        let wrong: Vec<&'static str> = [
            ("project", told(&self.project, &statement.project)),
            ("ref", told(&self.reference, &statement.reference)),
            ("commit", told(&self.commit, &statement.commit)),
            ("jobId", told(&self.job_id, &statement.job_id)),
            ("targetBranch", told(&self.target_branch, &statement.target_branch)),
            ("defaultBranch", told(&self.default_branch, &statement.default_branch)),
            ("refProtected", statement.ref_protected == Some(true) && self.ref_protected != Some(true)),
            ("fork", statement.fork == Some(false) && self.fork),
        ]
        .into_iter()
        .filter_map(|(member, wrong)| wrong.then_some(member))
        .collect();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(JobContext {
            ref_protected: if statement.ref_protected == Some(false) {
                Some(false)
            } else {
                self.ref_protected
            },
            fork: self.fork || statement.fork == Some(true),
            commit: self.commit.or(statement.commit),
            job_id: self.job_id.or(statement.job_id),
            target_branch: self.target_branch.or(statement.target_branch),
            default_branch: self.default_branch.or(statement.default_branch),
            ..self
        })
    }

    pub const fn is_proved(&self) -> bool {
        self.proved
    }

    /// How far what runs in this job is believed. Only a proof lifts it above what any member is trusted with.
    pub fn trust(&self) -> Trust {
        match (self.proved, self.ref_protected) {
            _ if self.fork => Trust::Untrusted,
            (true, Some(true)) => Trust::Protected,
            (true, _) | (_, Some(false)) => Trust::Untrusted,
            (false, _) => Trust::Internal,
        }
    }

    /// The origin of what is captured of this job.
    pub fn origin(self, outcome: Outcome, key: Option<String>) -> JobOrigin {
        JobOrigin {
            project: self.project,
            reference: self.reference,
            ref_protected: self.ref_protected,
            commit: self.commit,
            job_id: self.job_id,
            outcome,
            key,
        }
    }
}

/// The job that a snapshot was captured of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOrigin {
    pub project: Option<String>,
    pub reference: Option<String>,
    pub ref_protected: Option<bool>,
    pub commit: Option<String>,
    pub job_id: Option<String>,
    pub outcome: Outcome,
    /// By which it is found again; bytes that mean nothing to us.
    pub key: Option<String>,
}

/// What a new device is to start from: keys that captures were given, and what to do where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreSpec {
    pub key: String,
    /// In this order; one that ends in `*` stands for all keys that begin so.
    pub fallback_keys: Vec<String>,
    /// Nothing is started where nothing is found.
    pub required: bool,
}

/// One thing to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clue {
    Key(String),
    /// Keys that begin with these bytes.
    Prefix(String),
    Branch {
        project: String,
        reference: String,
    },
}

impl RestoreSpec {
    /// What is looked for, in this order, and as what it counts where it is found.
    pub fn clues(&self, job: Option<&JobContext>) -> Vec<(Hit, Clue)> {
        let mut clues = vec![(Hit::Exact, Clue::Key(self.key.clone()))];
        clues.extend(self.fallback_keys.iter().map(|key| {
            let clue = match key.strip_suffix('*') {
                Some(prefix) => Clue::Prefix(prefix.to_owned()),
                None => Clue::Key(key.clone()),
            };
            (Hit::Fallback, clue)
        }));
        let project = job.and_then(|job| job.project.clone());
        let branches = job.map(|job| [job.target_branch.clone(), job.default_branch.clone()]);
        if let (Some(project), Some(branches)) = (project, branches) {
            clues.extend(
                branches
                    .into_iter()
                    .flatten()
                    .map(|reference| (Hit::Fallback, Clue::Branch { project: project.clone(), reference })),
            );
        }
        clues
    }
}

/// How well what was found fits what was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hit {
    /// The key itself.
    Exact,
    /// Another key, or a branch.
    Fallback,
    /// Nothing, so that it starts from the newest promoted root.
    Root,
}

/// What a device was started from, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    pub hit: Hit,
    pub snapshot: Slug,
    /// The key under which that was captured.
    pub key: Option<String>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Success,
    Failure,
}

impl Outcome {
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Failure => "failure",
        }
    }
}

/// After which outcome a job's device is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    Never,
    Success,
    Failure,
    Always,
}

impl When {
    pub const fn asks_for(self, outcome: Outcome) -> bool {
        match self {
            When::Never => false,
            When::Success => matches!(outcome, Outcome::Success),
            When::Failure => matches!(outcome, Outcome::Failure),
            When::Always => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturePolicy {
    pub when: When,
    /// Under which the capture is found again.
    pub key: Option<String>,
    pub labels: Labels,
}

/// An emulator's part in a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub context: Option<JobContext>,
    pub restored: Option<Restored>,
    pub capture: Option<CapturePolicy>,
    /// Once the job has said how it ended.
    pub ending: Option<Ending>,
}

impl Job {
    /// What any member is trusted with, where nothing is known of the job.
    pub fn trust(&self) -> Trust {
        self.context.as_ref().map_or(Trust::Internal, JobContext::trust)
    }

    /// Whether content of this trust may be put under the job's device, although somebody names it. Who is no proved job
    /// may look at anything: what comes of it is trusted no further than what it came from.
    pub fn admits(&self, trust: Trust) -> bool {
        let proved = self.context.as_ref().is_some_and(JobContext::is_proved);
        !proved || trust >= self.trust()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub outcome: Outcome,
    pub capture: LastCapture,
}

/// What becomes of the capture that a job's end asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastCapture {
    NotAsked,
    /// The device goes when it is taken or given up.
    Wanted {
        snapshot: Slug,
    },
    Taken {
        snapshot: Slug,
    },
    Failed {
        message: String,
    },
}

impl Ending {
    /// The capture that the device waits for.
    pub const fn awaited(&self) -> Option<&Slug> {
        match &self.capture {
            LastCapture::Wanted { snapshot } => Some(snapshot),
            LastCapture::NotAsked | LastCapture::Taken { .. } | LastCapture::Failed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(ref_protected: bool, fork: bool) -> JobContext {
        JobContext::proved(JobProof {
            project: "acme/app".to_owned(),
            reference: "main".to_owned(),
            ref_protected,
            fork,
            commit: None,
            job_id: Some("7".to_owned()),
            target_branch: None,
            default_branch: None,
        })
    }

    fn says(ref_protected: Option<bool>, fork: Option<bool>) -> JobStatement {
        JobStatement { ref_protected, fork, ..JobStatement::default() }
    }

    #[test]
    fn a_statement_lowers_trust_and_never_raises_it() {
        let stated = |protected, fork| JobContext::stated(says(protected, fork));
        let lowered = |job: JobContext, protected, fork| {
            job.with_statement(says(protected, fork)).expect("no contradiction")
        };
        for (what, job, trust) in [
            ("nothing is said", stated(None, None), Trust::Internal),
            ("a protected branch is claimed", stated(Some(true), None), Trust::Internal),
            ("and that it is no fork", stated(Some(true), Some(false)), Trust::Internal),
            ("an unprotected branch", stated(Some(false), None), Trust::Untrusted),
            ("a fork", stated(None, Some(true)), Trust::Untrusted),
            ("a fork that claims protection", stated(Some(true), Some(true)), Trust::Untrusted),
            ("a proved protected branch", proof(true, false), Trust::Protected),
            ("a proved unprotected branch", proof(false, false), Trust::Untrusted),
            ("a proved fork", proof(false, true), Trust::Untrusted),
            ("a protected branch of a fork", proof(true, true), Trust::Untrusted),
            ("proved, and lowered", lowered(proof(true, false), Some(false), None), Trust::Untrusted),
            ("proved, and called a fork", lowered(proof(true, false), None, Some(true)), Trust::Untrusted),
            (
                "proved, and said again",
                lowered(proof(true, false), Some(true), Some(false)),
                Trust::Protected,
            ),
        ] {
            assert_eq!(job.trust(), trust, "{what}");
        }
    }

    #[test]
    fn a_statement_that_contradicts_the_proof_is_named() {
        for (job, statement, wrong) in [
            (proof(false, false), says(Some(true), None), "refProtected"),
            (proof(true, true), says(None, Some(false)), "fork"),
            (
                proof(true, false),
                JobStatement { project: Some("other".into()), ..says(None, None) },
                "project",
            ),
            (proof(true, false), JobStatement { reference: Some("dev".into()), ..says(None, None) }, "ref"),
            (proof(true, false), JobStatement { job_id: Some("8".into()), ..says(None, None) }, "jobId"),
        ] {
            assert_eq!(job.with_statement(statement).expect_err("a contradiction"), [wrong]);
        }
    }

    #[test]
    fn clues_come_in_their_order_and_keys_are_taken_as_they_are() {
        let restore = RestoreSpec {
            key: "app*".to_owned(),
            fallback_keys: ["app/*", "*", "App", "a**"].map(str::to_owned).to_vec(),
            required: false,
        };
        let job = JobContext::stated(JobStatement {
            project: Some("acme/app".to_owned()),
            target_branch: Some("next".to_owned()),
            default_branch: Some("main".to_owned()),
            ..JobStatement::default()
        });
        let branch = |reference: &str| Clue::Branch {
            project: "acme/app".to_owned(),
            reference: reference.to_owned(),
        };
        let expected = [
            (Hit::Exact, Clue::Key("app*".to_owned())),
            (Hit::Fallback, Clue::Prefix("app/".to_owned())),
            (Hit::Fallback, Clue::Prefix(String::new())),
            (Hit::Fallback, Clue::Key("App".to_owned())),
            (Hit::Fallback, Clue::Prefix("a*".to_owned())),
            (Hit::Fallback, branch("next")),
            (Hit::Fallback, branch("main")),
        ];
        assert_eq!(restore.clues(Some(&job)), expected);
        assert_eq!(restore.clues(None), expected[..5]);
    }

    #[test]
    fn a_capture_is_taken_when_the_outcome_asks_for_it() {
        for (when, success, failure) in [
            (When::Never, false, false),
            (When::Success, true, false),
            (When::Failure, false, true),
            (When::Always, true, true),
        ] {
            assert_eq!(
                (when.asks_for(Outcome::Success), when.asks_for(Outcome::Failure)),
                (success, failure)
            );
        }
    }
}

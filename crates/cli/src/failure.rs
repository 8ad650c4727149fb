//! What went wrong: an exit code for programs, and words that tell people what to do.

use std::io;

use paddock_api::client;
use paddock_api::problem::Problem;
use serde_json::json;

use crate::output::{Output, printable};

pub const EXIT_CODES: &str = "\
What the exit code of paddock says:

    0  done
    1  failed: the server refused the request, you answered no, or what you
       waited for did not come
    2  usage: the command line cannot be carried out as it is written
    3  not authenticated: there is no token, or it is not valid
    4  forbidden: your account may not do this, or is not linked yet
    5  not found: it does not exist, or you may not see it
    6  conflict: something stands in the way, or somebody else changed it first
    7  too many requests, or a quota is used up
   11  the server cannot be reached, or is in trouble
   12  no: what `paddock permission check` asked about is not allowed
  130  interrupted with Ctrl-C, as a shell reports it

A reader that stops early, as in `paddock tenant list | head -1`, is no failure.

The words on standard error say why and what to do. With -o json they are the
problem document of the server: its `code` is stable, its `requestId` stands in
the server's log.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotAuthenticated = 3,
    Forbidden = 4,
    NotFound = 5,
    Conflict = 6,
    TooMany = 7,
    Server = 11,
    NotAllowed = 12,
}

#[derive(Debug)]
pub enum Failure {
    Usage(String),
    NotFound(String),
    /// Nobody is signed in, or not any more.
    NotSignedIn(String),
    /// The user was asked and said no.
    Declined,
    /// It was done, but the answer that held a secret did not arrive.
    Lost(String),
    /// It was asked for, but did not come to be, or not in time.
    NotReached(String),
    /// The question was answered, and the answer is no.
    NotAllowed,
    Client(client::Error),
    /// Standard output did not take the data.
    Output(io::Error),
    Runtime(io::Error),
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        match error {
            client::Error::Setup(words) => Failure::Usage(words),
            error => Failure::Client(error),
        }
    }
}

impl Failure {
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Usage(_) => Exit::Usage,
            Failure::NotFound(_) => Exit::NotFound,
            Failure::NotSignedIn(_) | Failure::Client(client::Error::NoTokens(_)) => Exit::NotAuthenticated,
            Failure::Client(client::Error::Refused(problem)) => match problem.status {
                401 => Exit::NotAuthenticated,
                403 => Exit::Forbidden,
                404 => Exit::NotFound,
                409 | 412 => Exit::Conflict,
                429 => Exit::TooMany,
                500.. => Exit::Server,
                _ => Exit::Failed,
            },
            Failure::Client(_) => Exit::Server,
            // The reader has seen enough.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Failure::NotAllowed => Exit::NotAllowed,
            Failure::Declined
            | Failure::Lost(_)
            | Failure::NotReached(_)
            | Failure::Output(_)
            | Failure::Runtime(_) => Exit::Failed,
        }
    }

    /// What to write on standard error, if anything.
    pub fn report(&self, output: Output) -> Option<String> {
        match self.exit() {
            // The answer itself says no.
            Exit::Done | Exit::NotAllowed => None,
            _ if output.is_json() => Some(self.document()),
            _ => Some(self.words()),
        }
    }

    fn document(&self) -> String {
        let document = match self {
            Failure::Client(client::Error::Refused(problem)) => serde_json::to_string_pretty(problem),
            // No server said this, so it has no status and no request id.
            _ => serde_json::to_string_pretty(&json!({
                "type": format!("urn:paddock:problem:{}", self.code()),
                "code": self.code(),
                "detail": self.detail(),
            })),
        };
        document.unwrap_or_else(|_| self.words())
    }

    fn code(&self) -> &'static str {
        match self {
            Failure::Usage(_) => "usage",
            Failure::NotFound(_) => "not_found",
            Failure::NotSignedIn(_) | Failure::Client(client::Error::NoTokens(_)) => "not_signed_in",
            Failure::Declined => "declined",
            Failure::Lost(_) => "answer_lost",
            Failure::NotReached(_) => "not_reached",
            Failure::NotAllowed => "not_allowed",
            Failure::Client(client::Error::Unreachable(_)) => "unreachable",
            Failure::Client(_) => "foreign_answer",
            Failure::Output(_) => "output_failed",
            Failure::Runtime(_) => "internal",
        }
    }

    fn detail(&self) -> String {
        match self {
            Failure::Usage(words)
            | Failure::NotFound(words)
            | Failure::NotSignedIn(words)
            | Failure::Lost(words)
            | Failure::NotReached(words) => words.clone(),
            Failure::Declined => "you said no; nothing was changed".to_owned(),
            Failure::NotAllowed => "it is not allowed".to_owned(),
            Failure::Client(client::Error::Unreachable(error)) if error.is_timeout() => {
                "the server did not answer in time".to_owned()
            }
            Failure::Client(error) => error.to_string(),
            Failure::Output(error) => format!("cannot write the answer: {error}"),
            Failure::Runtime(error) => format!("cannot start: {error}"),
        }
    }

    /// The detail, everything that the server found, and what to do next.
    fn words(&self) -> String {
        let mut lines = vec![format!("error: {}", self.detail())];
        if let Failure::Client(client::Error::Refused(problem)) = self {
            lines
                .extend(problem.errors.iter().map(|fault| format!("  {}: {}", fault.pointer, fault.message)));
            lines.extend(problem.problems.iter().map(|obstacle| format!("  - {}", obstacle.message)));
        }
        lines.extend(self.hint().map(|hint| format!("hint: {hint}")));
        lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
    }

    fn hint(&self) -> Option<String> {
        match self {
            Failure::Client(client::Error::Refused(problem)) => hint_for(problem),
            Failure::Client(client::Error::Unreachable(error)) => {
                let address = error.url().map(|url| url.origin().ascii_serialization()).unwrap_or_default();
                Some(hint_for_certificate(&self.detail()).map_or_else(
                    || format!("Is paddockd running at {address}? Another address goes into PADDOCK_URL or --url."),
                    str::to_owned,
                ))
            }
            Failure::NotSignedIn(_) | Failure::Client(client::Error::NoTokens(_)) => {
                Some("Sign in with `paddock auth login`.".to_owned())
            }
            Failure::Client(_) => Some("Set the address of the server with PADDOCK_URL or --url.".to_owned()),
            _ => None,
        }
    }
}

/// What to do where it is the certificate of the server that is not accepted.
fn hint_for_certificate(cause: &str) -> Option<&'static str> {
    if cause.contains("CaUsedAsEndEntity") {
        Some(
            "The server shows a root certificate as its own. Let the root sign another one for it, or make it with \
             `openssl req -x509 -addext basicConstraints=critical,CA:FALSE`.",
        )
    } else if cause.contains("certificate") {
        Some("If it is signed by a root of your own, name the root's file with --ca-file.")
    } else {
        None
    }
}

fn hint_for(problem: &Problem) -> Option<String> {
    let hint = match (problem.status, &problem.link) {
        (401, _) => {
            "Sign in with `paddock auth login`; or put a token into PADDOCK_TOKEN, or into a file for --token-file."
        }
        (403, Some(link)) => return Some(format!("Open {link} to be allowed.")),
        (403, None) => "Ask an admin of the tenant or of the platform to grant it to you.",
        (412, _) => {
            "Somebody else changed it at the same time. Run the command again to work on the newest version."
        }
        (429, _) => "Wait a moment, then try again.",
        (500.., _) => return Some(format!("The request id, for your admin: {}", problem.request_id)),
        _ => return None,
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io;

    use paddock_api::client;
    use paddock_api::problem::{Fault, Obstacle, Problem};

    use super::{EXIT_CODES, Exit, Failure};

    fn problem(status: u16) -> Problem {
        Problem {
            r#type: "urn:paddock:problem:test".to_owned(),
            title: "Test".to_owned(),
            status,
            detail: "It cannot be.".to_owned(),
            instance: "/api/v1/tenants".to_owned(),
            code: "test".to_owned(),
            request_id: "5f2c9a01-1c".to_owned(),
            errors: Vec::new(),
            problems: Vec::new(),
            link: None,
        }
    }

    fn refused(problem: Problem) -> Failure {
        client::Error::Refused(Box::new(problem)).into()
    }

    #[test]
    fn every_failure_has_its_exit_code_and_the_topic_names_it() {
        for (failure, exit) in [
            (Failure::Usage(String::new()), Exit::Usage),
            (Failure::NotFound(String::new()), Exit::NotFound),
            (Failure::NotSignedIn(String::new()), Exit::NotAuthenticated),
            (Failure::Declined, Exit::Failed),
            (Failure::Lost(String::new()), Exit::Failed),
            (Failure::NotReached(String::new()), Exit::Failed),
            (Failure::NotAllowed, Exit::NotAllowed),
            (Failure::Output(io::ErrorKind::BrokenPipe.into()), Exit::Done),
            (Failure::Output(io::ErrorKind::StorageFull.into()), Exit::Failed),
            (client::Error::Setup(String::new()).into(), Exit::Usage),
            (client::Error::Foreign(http::StatusCode::NOT_FOUND).into(), Exit::Server),
            (refused(problem(400)), Exit::Failed),
            (refused(problem(401)), Exit::NotAuthenticated),
            (refused(problem(403)), Exit::Forbidden),
            (refused(problem(404)), Exit::NotFound),
            (refused(problem(409)), Exit::Conflict),
            (refused(problem(412)), Exit::Conflict),
            (refused(problem(422)), Exit::Failed),
            (refused(problem(429)), Exit::TooMany),
            (refused(problem(500)), Exit::Server),
            (refused(problem(503)), Exit::Server),
        ] {
            assert_eq!(failure.exit(), exit, "{failure:?}");
            assert!(EXIT_CODES.contains(&format!("\n{:5}  ", exit as u8)), "{exit:?}");
        }
    }

    #[test]
    fn the_words_say_what_to_do() {
        let fault = Fault {
            pointer: "/labels/Team".to_owned(),
            code: "pattern".to_owned(),
            message: "must begin with a lower-case letter".to_owned(),
        };
        let obstacle = |message: &str| Obstacle { code: "in_use".to_owned(), message: message.to_owned() };

        for (failure, expected) in [
            (Failure::Usage("say more".to_owned()), "error: say more"),
            (
                refused(Problem { errors: vec![fault], ..problem(422) }),
                "error: It cannot be.\n  /labels/Team: must begin with a lower-case letter",
            ),
            (
                refused(Problem {
                    problems: vec![obstacle("It has a child."), obstacle("It runs.")],
                    ..problem(409)
                }),
                "error: It cannot be.\n  - It has a child.\n  - It runs.",
            ),
            (
                refused(Problem { link: Some("https://paddock.example/link".to_owned()), ..problem(403) }),
                "error: It cannot be.\nhint: Open https://paddock.example/link to be allowed.",
            ),
            (
                refused(problem(500)),
                "error: It cannot be.\nhint: The request id, for your admin: 5f2c9a01-1c",
            ),
            (refused(Problem { detail: "\u{1b}[2J".to_owned(), ..problem(400) }), "error: \u{fffd}[2J"),
        ] {
            assert_eq!(failure.words(), expected);
        }
        assert!(refused(problem(401)).words().contains("paddock auth login"));
        assert!(refused(problem(412)).words().contains("Somebody else changed it"));
    }

    #[test]
    fn a_program_gets_the_problem_document_itself() {
        let read: Problem =
            serde_json::from_str(&refused(problem(409)).document()).expect("the document is a problem");

        assert_eq!(read, problem(409));
    }

    #[test]
    fn a_failure_without_a_server_has_a_code_too() {
        let document: serde_json::Value =
            serde_json::from_str(&Failure::NotFound("no such tenant".to_owned()).document())
                .expect("it is JSON");

        assert_eq!(document["code"], "not_found");
        assert_eq!(document["detail"], "no such tenant");
    }
}

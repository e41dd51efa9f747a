//! What every answer of the suite must keep, whichever case it belongs to: errors in the
//! protocol's form (C107), successes with status 200 exactly (C106), a connection that can be used
//! again or says that it cannot (C118).

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use http::Method;

use crate::{answer::Answer, harness::Hop};

/// Begins what was sent over HTTP/2.
pub(crate) const H2: &str = "[h2] ";

/// The result of everything, by line of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    lines: BTreeMap<(u16, Hop), Line>,
    /// Where, by what failed and why: the same failure is told once.
    failures: BTreeMap<(u16, String, String), BTreeSet<String>>,
}

/// Cases of one line at one hop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

/// `C12` is 12.
pub(crate) fn number(id: &str) -> u16 {
    id.strip_prefix('C').and_then(|digits| digits.parse().ok()).expect("an id of the table")
}

impl Sweep {
    /// Notes what a case, or one look at an answer, came to.
    pub(crate) fn note(&self, id: &str, hop: Hop, what: &str, outcome: Result<(), String>) {
        let mut state = self.0.borrow_mut();
        let line = state.lines.entry((number(id), hop)).or_default();
        match outcome {
            Ok(()) => line.passed += 1,
            Err(why) => {
                line.failed += 1;
                let (what, place) = match what.strip_prefix(H2) {
                    Some(what) => (what, format!("{hop} over HTTP/2")),
                    None => (what, hop.to_string()),
                };
                let failure = (number(id), what.to_owned(), why);
                state.failures.entry(failure).or_default().insert(place);
            }
        }
    }

    /// Looks at an answer to any request.
    pub(crate) fn saw(&self, hop: Hop, what: &str, method: &Method, answer: &Answer) {
        if answer.status >= 400 && method != Method::HEAD {
            let outcome = answer.error().map(drop);
            let outcome = outcome.map_err(|why| format!("{why}; {}", answer.brief()));
            self.note("C107", hop, what, outcome);
        }
        // A preflight has no body to have; everything else that succeeds is 200.
        if (200..400).contains(&answer.status) && method != Method::OPTIONS {
            let exact = answer.status == 200;
            let outcome = if exact { Ok(()) } else { Err(answer.brief()) };
            self.note("C106", hop, what, outcome);
        }
    }

    /// The result of one line at one hop.
    pub(crate) fn line(&self, number: u16, hop: Hop) -> Line {
        self.0.borrow().lines.get(&(number, hop)).copied().unwrap_or_default()
    }

    /// Whether a line has cases at both hops, and all of them pass.
    pub(crate) fn met(&self, number: u16) -> bool {
        Hop::BOTH.iter().all(|hop| {
            let line = self.line(number, *hop);
            line.passed > 0 && line.failed == 0
        })
    }

    /// Every failure, in words.
    pub(crate) fn failures(&self) -> Vec<String> {
        let state = self.0.borrow();
        let failures = state.failures.iter().map(|((line, what, why), places)| {
            let places = places.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let text = format!("C{line} at {places}: {what}\n    {why}");
            // A control character of a body must not reach a terminal.
            text.replace(|c: char| c.is_control() && c != '\n', "?")
        });
        failures.collect()
    }
}

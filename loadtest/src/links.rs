//! What the process that runs the emulated links tells others of them: a small JSON document at
//! `GET /links`, and the client's side of it. Serving it is the other process's business.

use std::time::Duration;

use http::Uri;
use serde::{Deserialize, Serialize};

use crate::{
    emulator::{LinkSpec, Outage},
    live::client::{Client, Protocol, SendError},
};

/// Largest document that is read, bytes.
const MAX_BODY: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Every emulated link of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinksStatus {
    /// In the process's order.
    pub links: Vec<LinkStatus>,
}

/// One emulated link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its name, unique within the process.
    pub name: String,
    /// What it is like, in the text form of [`LinkSpec`].
    pub spec: LinkSpec,
    /// What is broken about it.
    pub outage: Outage,
    /// Payload bytes towards the target since the link began.
    pub up_bytes: u64,
    /// Payload bytes from the target since the link began.
    pub down_bytes: u64,
}

impl LinksStatus {
    /// Bytes (up, down) that went over all links since `before` was read.
    ///
    /// # Errors
    /// When a link of `before` is missing or its counter fell: it was restarted in between.
    pub fn since(&self, before: &Self) -> Result<(u64, u64), LinksError> {
        let mut total = (0_u64, 0_u64);
        for old in &before.links {
            let restarted = || LinksError::Restarted(old.name.clone());
            let new = self.links.iter().find(|link| link.name == old.name);
            let new = new.ok_or_else(restarted)?;
            total.0 += new.up_bytes.checked_sub(old.up_bytes).ok_or_else(restarted)?;
            total.1 += new.down_bytes.checked_sub(old.down_bytes).ok_or_else(restarted)?;
        }
        let is_new = |link: &&LinkStatus| before.links.iter().all(|old| old.name != link.name);
        for link in self.links.iter().filter(is_new) {
            total.0 += link.up_bytes;
            total.1 += link.down_bytes;
        }
        Ok(total)
    }
}

/// Link counters that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LinksError {
    /// The request failed.
    #[error("GET {uri}: {problem}")]
    Fetch {
        /// What was asked.
        uri: Uri,
        /// What went wrong.
        problem: String,
    },
    /// The answer is not a links document.
    #[error("GET {uri}: not a links document: {source}")]
    Json {
        /// What was asked.
        uri: Uri,
        /// Where the JSON is wrong.
        source: serde_json::Error,
    },
    /// The counters of two readings do not belong together.
    #[error("link '{0}' was restarted between the two readings")]
    Restarted(String),
}

/// Reads the document at `uri`, for example `http://127.0.0.1:9090/links`.
///
/// # Errors
/// When it cannot be read within five seconds or does not parse.
pub async fn fetch_links(uri: &Uri) -> Result<LinksStatus, LinksError> {
    let fail = |problem: String| LinksError::Fetch { uri: uri.clone(), problem };
    let request = http::Request::get(uri.clone())
        .body(http_body_util::Full::default())
        .map_err(|error| fail(error.to_string()))?;
    let client = Client::new(Protocol::H1, 1);
    let answer = tokio::time::timeout(TIMEOUT, client.send(request, MAX_BODY)).await;
    client.close().await;
    let (head, body) = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(SendError::Connect(text) | SendError::Reset(text))) => return Err(fail(text)),
        Ok(Err(error @ SendError::TooLarge(_))) => return Err(fail(error.to_string())),
        Err(_) => return Err(fail(format!("no answer within {}s", TIMEOUT.as_secs()))),
    };
    if head.status != http::StatusCode::OK {
        return Err(fail(format!("status {}", head.status)));
    }
    serde_json::from_slice(&body).map_err(|source| LinksError::Json { uri: uri.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(links: &[(&str, u64, u64)]) -> LinksStatus {
        let link = |&(name, up_bytes, down_bytes): &(&str, u64, u64)| LinkStatus {
            name: name.into(),
            spec: LinkSpec::preset("4g").unwrap(),
            outage: Outage::None,
            up_bytes,
            down_bytes,
        };
        LinksStatus { links: links.iter().map(link).collect() }
    }

    #[test]
    fn json_form_is_stable() {
        expect_test::expect![[
            r#"{"links":[{"name":"edge-a","spec":"4g","outage":"none","up_bytes":5,"down_bytes":7}]}"#
        ]]
        .assert_eq(&serde_json::to_string(&status(&[("edge-a", 5, 7)])).unwrap());
    }

    #[test]
    fn differences_add_up_and_restarts_are_noticed() {
        let before = status(&[("a", 10, 100), ("b", 5, 5)]);
        let after = status(&[("b", 6, 5), ("a", 30, 101), ("c", 2, 3)]);
        assert_eq!(after.since(&before).unwrap(), (23, 4));
        let restarted = status(&[("a", 30, 101), ("b", 4, 9)]).since(&before).unwrap_err();
        assert_eq!(restarted.to_string(), "link 'b' was restarted between the two readings");
        assert!(matches!(
            status(&[("a", 30, 101)]).since(&before),
            Err(LinksError::Restarted(name)) if name == "b"
        ));
    }
}

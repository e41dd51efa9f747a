//! What a link costs. For `b` bytes of payload on a line of rate `r` with round trip `T` and loss
//! `p`:
//!
//! `time = b / r + max(n p T, b / m - b / r) + start`, `n = ceil(b / 1448)`,
//! `m = 1.22 · 1448 / (T sqrt p)`.
//!
//! `m` is what one TCP connection keeps up under loss (Mathis, Semke, Mahdavi, Ott: "The macroscopic
//! behavior of the TCP congestion avoidance algorithm", 1997); short bodies lose `n p` packets, each
//! a round trip late. `start` is what a connection that was idle waits while its window of ten
//! packets doubles up to the line's; it is 0 unless the link says `start=slow`. An exchange is both
//! directions and one round trip. Queueing by other traffic, jitter and the headers of packets are
//! not in it: state the rate that payload gets. Pure.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Payload of a packet, bytes.
const PACKET: f64 = 1448.0;
/// Packets that an idle connection sends before it hears back (RFC 6928).
const FIRST_WINDOW: f64 = 10.0;
/// Names of links that everyone knows.
pub const PRESETS: [&str; 3] = ["3g", "4g", "wifi"];
/// Most states of a trace.
const MOST_STATES: usize = 100_000;

/// A link between an edge and a cloud.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Link {
    /// How it was called.
    pub name: String,
    /// Bits per second towards the cloud, above 0.
    pub up_bps: f64,
    /// Bits per second from the cloud, above 0.
    pub down_bps: f64,
    /// Round trip of the empty link, microseconds.
    pub rtt_us: f64,
    /// Share of packets lost, 0 to 0.5.
    pub loss: f64,
    /// Whether connections are idle so long between requests that they start slowly again.
    pub slow_start: bool,
}

/// A link, and for how long it is like this.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct State {
    /// The link.
    pub link: Link,
    /// Seconds; 1 for a link that does not change.
    pub seconds: f64,
}

/// Text that is no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Neither a preset nor pairs.
    #[error("\"{0}\" is no link: name one of 3g, 4g, wifi, or write up=5Mbps,down=20Mbps,rtt=40ms")]
    Name(String),
    /// A key that links do not have.
    #[error("{0}: links have up, down, rtt, loss and start")]
    Key(String),
    /// A value out of range or without its unit.
    #[error("{key}={value}: {wanted}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A key that is missing.
    #[error("\"{link}\" says no {key}")]
    Missing {
        /// The text.
        link: String,
        /// The key.
        key: &'static str,
    },
    /// A trace that cannot be read.
    #[error("line {line}: {reason}")]
    Trace {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

impl Link {
    /// A named link.
    pub fn preset(name: &str) -> Option<Self> {
        let (up, down, rtt) = match name {
            "3g" => (1.1, 2.03, 120.0),
            "4g" => (5.85, 13.76, 50.0),
            "wifi" => (18.88, 54.97, 8.0),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            up_bps: up * 1e6,
            down_bps: down * 1e6,
            rtt_us: rtt * 1e3,
            loss: 0.0,
            slow_start: false,
        })
    }

    /// Microseconds from the first byte of a request to the last of its answer, the time at the
    /// other end left out.
    pub fn exchange_us(&self, up_bytes: f64, down_bytes: f64) -> f64 {
        self.rtt_us
            + self.one_way_us(up_bytes, self.up_bps)
            + self.one_way_us(down_bytes, self.down_bps)
    }

    fn one_way_us(&self, bytes: f64, bps: f64) -> f64 {
        let line = bytes * 8e6 / bps;
        let lost = (bytes / PACKET).ceil() * self.loss * self.rtt_us;
        let mut late = lost;
        if self.loss > 0.0 && self.rtt_us > 0.0 {
            // Bytes per microsecond.
            let kept_up = 1.22 * PACKET / (self.rtt_us * self.loss.sqrt());
            late = late.max(bytes / kept_up - line);
        }
        line + late + if self.slow_start { self.start_us(bytes, bps) } else { 0.0 }
    }

    /// Round by round: a window that is smaller than the line holds leaves the line idle until the
    /// first acknowledgement is back.
    fn start_us(&self, bytes: f64, bps: f64) -> f64 {
        let (mut window, mut left, mut idle) = (FIRST_WINDOW * PACKET, bytes, 0.0);
        loop {
            let sending = window.min(left) * 8e6 / bps;
            left -= window;
            if left <= 0.0 || sending >= self.rtt_us {
                return idle;
            }
            idle += self.rtt_us - sending;
            window *= 2.0;
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), LinkError> {
        let bad = |wanted| LinkError::Value { key: key.into(), value: value.into(), wanted };
        match key {
            "up" | "down" => {
                let wanted = "a rate such as 5Mbps, 800kbps or 1Gbps";
                let bps =
                    with_unit(value, &[("gbps", 1e9), ("mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)])
                        .filter(|bps| (1.0..=1e12).contains(bps))
                        .ok_or_else(|| bad(wanted))?;
                if key == "up" { self.up_bps = bps } else { self.down_bps = bps }
            }
            "rtt" => {
                self.rtt_us = with_unit(value, &[("us", 1.0), ("ms", 1e3), ("s", 1e6)])
                    .filter(|us| (0.0..=60e6).contains(us))
                    .ok_or_else(|| bad("a time up to 60s, such as 40ms"))?;
            }
            "loss" => {
                self.loss = with_unit(value, &[("%", 0.01)])
                    .filter(|share| (0.0..=0.5).contains(share))
                    .ok_or_else(|| bad("a share of packets up to 50%, such as 0.5%"))?;
            }
            "start" => {
                self.slow_start = match value {
                    "slow" => true,
                    "warm" => false,
                    _ => return Err(bad("slow or warm")),
                };
            }
            _ => return Err(LinkError::Key(key.to_owned())),
        }
        Ok(())
    }
}

/// A number with one of these units, times what the unit stands for.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, unit) =
        units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    let value: f64 = digits.trim().parse().ok()?;
    value.is_finite().then_some(value * unit)
}

impl FromStr for Link {
    type Err = LinkError;

    /// A preset, pairs, or a preset and pairs that change it.
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let mut link = Self {
            name: text.to_owned(),
            up_bps: 0.0,
            down_bps: 0.0,
            rtt_us: -1.0,
            loss: 0.0,
            slow_start: false,
        };
        for (index, part) in text.split(',').map(str::trim).enumerate() {
            match part.split_once('=') {
                Some((key, value)) => link.set(key.trim(), value.trim())?,
                None if index == 0 => {
                    let preset = Self::preset(part).ok_or_else(|| LinkError::Name(part.into()))?;
                    link = Self { name: text.to_owned(), ..preset };
                }
                None => return Err(LinkError::Key(part.to_owned())),
            }
        }
        let missing = [
            ("up", link.up_bps <= 0.0),
            ("down", link.down_bps <= 0.0),
            ("rtt", link.rtt_us < 0.0),
        ];
        match missing.iter().find(|(_, missing)| *missing) {
            Some((key, _)) => Err(LinkError::Missing { link: text.to_owned(), key }),
            None => Ok(link),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (up, down, rtt) = (self.up_bps / 1e6, self.down_bps / 1e6, self.rtt_us / 1e3);
        write!(f, "{}: {up} Mbps up, {down} Mbps down, {rtt} ms", self.name)?;
        if self.loss > 0.0 {
            write!(f, ", {} % lost", self.loss * 100.0)?;
        }
        if self.slow_start { f.write_str(", slow start") } else { Ok(()) }
    }
}

/// Reads a trace: comma-separated values whose first line names the columns `seconds`, `up_mbps`,
/// `down_mbps`, `rtt_ms` and, where packets are lost, `loss_percent`. A state lasts until the next
/// one begins, the last as long as the one before it.
///
/// # Errors
/// When a line makes no sense; it is named.
pub fn trace(text: &str) -> Result<Vec<State>, LinkError> {
    let fault = |line: usize, reason: String| LinkError::Trace { line: line + 1, reason };
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let head: Vec<&str> =
        lines.next().map_or(vec![], |(_, head)| head.split(',').map(str::trim).collect());
    let column = |name: &str| head.iter().position(|found| *found == name);
    let needed =
        |name: &str| column(name).ok_or_else(|| fault(0, format!("there is no column {name}")));
    let columns = [needed("seconds")?, needed("up_mbps")?, needed("down_mbps")?, needed("rtt_ms")?];
    let loss = column("loss_percent");
    let (mut begins, mut links): (Vec<f64>, Vec<Link>) = (vec![], vec![]);
    for (number, line) in lines {
        if links.len() == MOST_STATES {
            return Err(fault(number, format!("more than {MOST_STATES} states")));
        }
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let value = |column: usize| {
            let cell = cells.get(column).copied().unwrap_or_default();
            let value = cell.parse::<f64>().ok().filter(|value| value.is_finite());
            value.ok_or_else(|| fault(number, format!("{} is \"{cell}\", no number", head[column])))
        };
        let [seconds, up, down, rtt] = columns.map(value);
        let (seconds, loss) = (seconds?, loss.map_or(Ok(0.0), value)?);
        let text = format!("up={}Mbps,down={}Mbps,rtt={}ms,loss={loss}%", up?, down?, rtt?);
        let link: Link =
            text.parse().map_err(|error: LinkError| fault(number, error.to_string()))?;
        if begins.last().is_some_and(|last| *last >= seconds) {
            return Err(fault(number, "seconds do not rise".into()));
        }
        begins.push(seconds);
        links.push(Link { name: format!("at {seconds} s"), ..link });
    }
    if links.is_empty() {
        return Err(fault(0, "there are no states".into()));
    }
    let lasts: Vec<f64> = begins.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let last = lasts.last().copied().unwrap_or(1.0);
    let seconds = lasts.into_iter().chain([last]);
    Ok(links.into_iter().zip(seconds).map(|(link, seconds)| State { link, seconds }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 1e-9, "{got} is not {expected}");
    }

    #[test]
    fn an_exchange_is_a_round_trip_and_both_lines() {
        let link: Link = "up=8Mbps,down=80Mbps,rtt=10ms".parse().unwrap();
        close(link.exchange_us(10_000.0, 1_000.0), 10_000.0 + 10_000.0 + 100.0);
        // One packet in a hundred is a round trip late, until the window gives less than the line.
        let lossy: Link = "up=8Mbps,down=80Mbps,rtt=10ms,loss=1%".parse().unwrap();
        close(lossy.exchange_us(1448.0, 0.0), 10_000.0 + 1448.0 + 100.0);
        let kept_up = 1.22 * 1448.0 / (100_000.0 * 0.1);
        let far: Link = "up=8Mbps,down=80Mbps,rtt=100ms,loss=1%".parse().unwrap();
        close(far.exchange_us(1e6, 0.0), 100_000.0 + 1e6 / kept_up);
    }

    #[test]
    fn a_slow_start_waits_for_its_window() {
        let link: Link = "up=80Mbps,down=80Mbps,rtt=50ms,start=slow".parse().unwrap();
        // Ten packets leave at once; the eleventh waits for a round trip.
        close(link.exchange_us(14_480.0, 0.0), 50_000.0 + 1448.0);
        close(link.exchange_us(14_490.0, 0.0), 50_000.0 + 1449.0 + 50_000.0 - 1448.0);
    }

    #[test]
    fn presets_and_pairs_are_links() {
        let link: Link = "4g,rtt=80ms".parse().unwrap();
        assert_eq!((link.up_bps, link.rtt_us), (5.85e6, 80_000.0));
        for name in PRESETS {
            assert!(name.parse::<Link>().is_ok());
        }
        for (text, message) in [
            (
                "5g",
                "\"5g\" is no link: name one of 3g, 4g, wifi, or write up=5Mbps,down=20Mbps,rtt=40ms",
            ),
            ("up=5Mbps,down=1Mbps", "\"up=5Mbps,down=1Mbps\" says no rtt"),
            ("4g,speed=1", "speed: links have up, down, rtt, loss and start"),
            ("4g,up=5", "up=5: a rate such as 5Mbps, 800kbps or 1Gbps"),
            ("4g,loss=0.6", "loss=0.6: a share of packets up to 50%, such as 0.5%"),
            ("4g,rtt=-1ms", "rtt=-1ms: a time up to 60s, such as 40ms"),
            ("4g,up=0Mbps", "up=0Mbps: a rate such as 5Mbps, 800kbps or 1Gbps"),
        ] {
            assert_eq!(text.parse::<Link>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_trace_is_states_with_their_times() {
        let text = "seconds,rtt_ms,up_mbps,down_mbps\n0,50,5,10\n30,80,1,2\n40,50,5,10\n";
        let states = trace(text).unwrap();
        assert_eq!(
            states.iter().map(|state| state.seconds).collect::<Vec<_>>(),
            [30.0, 10.0, 10.0]
        );
        assert_eq!((states[1].link.up_bps, states[1].link.rtt_us), (1e6, 80_000.0));
        let fault = |text: &str| trace(text).unwrap_err().to_string();
        assert_eq!(fault("seconds,up_mbps\n"), "line 1: there is no column down_mbps");
        let head = "seconds,up_mbps,down_mbps,rtt_ms\n";
        assert_eq!(fault(head), "line 1: there are no states");
        assert_eq!(fault(&format!("{head}0,1,x,3\n")), "line 2: down_mbps is \"x\", no number");
        assert_eq!(fault(&format!("{head}1,1,1,3\n1,1,1,3\n")), "line 3: seconds do not rise");
    }
}

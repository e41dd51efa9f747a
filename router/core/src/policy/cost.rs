//! What a request is predicted to take at a node.
//!
//! ```text
//! cost    = network + queue + service + load + offload + errors        [us]
//! network = floor RTT * round trips of the payload class (1, 2 or 3)
//! queue   = max(0, load + 1 - workers * ramp) * service / (workers * ramp)
//! load    = load time, if the model is not in memory
//! offload = P(hard) * offload time
//! errors  = P(failure) * penalty  (+ penalty / 4 when suspect)
//! ```
//!
//! `load` of the queue is the aged report of others' requests plus own ones
//! now, in requests; `ramp` is below one in a slow start. When data is
//! missing: the floor falls back to the distance, then to a default; the
//! service time to the node's word, then to a default (both made by `gather`);
//! a node without reports has only our own requests as load; without a stated
//! offload time offloading is free. Decides nothing; a deadline, a price or
//! carbon never enters the sum.

use super::Common;
use crate::cells::Health;
use crate::decision::Cost;
use crate::inputs::Candidate;
use crate::request::Request;
use crate::topology::Held;
use crate::units::{Micros, mul_div};

pub(crate) fn predict(c: &Candidate, request: &Request, common: &Common) -> Cost {
    let service = c.service.value;
    // Workers in thousandths, never zero.
    let workers = (u64::from(c.workers.get()) * u64::from(c.ramp.0)).max(1);
    let waiting = c.load.0.saturating_add(1_000).saturating_sub(workers);
    let suspect = match c.health {
        Health::Suspect => Micros(common.error_penalty.0 / 4),
        _ => Micros::ZERO,
    };
    Cost {
        network: c.floor.value.times(request.payload.round_trips()),
        queue: Micros(mul_div(waiting, service.0, workers)),
        service,
        load: match c.held {
            Held::Resident => Micros::ZERO,
            Held::Loadable(time) => time,
        },
        offload: c.offload.map_or(Micros::ZERO, |time| time.expected(request.hard)),
        errors: common.error_penalty.expected(c.errors).plus(suspect),
    }
}

//! What is asked, in which order and when: labelled images as inference requests, from a seed.
//! The same seed gives the same requests for every driver. No IO and no clock: times are offsets.

use std::{fmt, time::Duration};

use midspan_protocol::{InferRequest, Parameter, ProtocolError, Tensor, response::Encoded};

use crate::rng::Rng;

/// Most requests of one workload: an outcome is kept for each.
pub const MAX_REQUESTS: usize = 5_000_000;

/// Labelled images of one shape, as a model takes them: value / 255 as FP32.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labelled {
    /// The model's input name.
    pub input: String,
    /// Shape of one image as the model takes it, batch dimension of 1 included.
    pub shape: Vec<u64>,
    /// Pixel values, row-major, one image each.
    pub images: Vec<Vec<u8>>,
    /// True classes, one per image.
    pub labels: Vec<u32>,
}

impl Labelled {
    /// A bundle's labelled grey images for the model input `input` of shape `[N,1,rows,columns]`.
    #[must_use]
    pub fn of_samples(samples: &midspan_split::Labelled, input: impl Into<String>) -> Self {
        let (rows, columns) = samples.size();
        let mut set = Self {
            input: input.into(),
            shape: vec![1, 1, rows as u64, columns as u64],
            ..Self::default()
        };
        for index in 0..samples.len() {
            if let (Some(pixels), Some(label)) = (samples.pixels(index), samples.label(index)) {
                set.images.push(pixels.to_vec());
                set.labels.push(u32::try_from(label).unwrap_or(u32::MAX));
            }
        }
        set
    }
}

/// How tensors travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyForm {
    /// The binary tensor extension, both ways.
    #[default]
    Binary,
    /// Plain JSON, both ways.
    Json,
}

impl fmt::Display for BodyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary => "binary",
            Self::Json => "json",
        })
    }
}

/// Requests per second, finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// A rate between one request in an hour and a million per second; `None` outside.
    #[must_use]
    pub fn per_second(rate: f64) -> Option<Self> {
        (1.0 / 3600.0..=1e6).contains(&rate).then_some(Self(rate))
    }

    /// Requests per second.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    /// Closed loop: the next one when an answer is there.
    #[default]
    Closed,
    /// Open loop, equal gaps.
    Even(Rate),
    /// Open loop, seeded exponential gaps, as many independent users make them.
    Poisson(Rate),
}

impl Pace {
    /// The rate of an open loop.
    #[must_use]
    pub fn rate(self) -> Option<Rate> {
        match self {
            Self::Closed => None,
            Self::Even(rate) | Self::Poisson(rate) => Some(rate),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::Even(_) => "even",
            Self::Poisson(_) => "poisson",
        })
    }
}

/// A fixed sequence of requests with ready bodies.
#[derive(Clone, Debug)]
pub struct Workload {
    order: Vec<u32>,
    bodies: Vec<Option<Encoded>>,
    labels: Vec<u32>,
    seed: u64,
    form: BodyForm,
}

/// One request of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// Index of the image among the labelled ones.
    pub image: usize,
    /// Its true class.
    pub label: u32,
    /// Body and the length of its JSON part.
    pub body: &'a Encoded,
}

impl Workload {
    /// Plans `requests` requests over `set`: every image once in a seeded order, then again in
    /// another one, for as long as needed.
    ///
    /// # Errors
    /// When the set is empty or inconsistent, or `requests` is not within 1..=[`MAX_REQUESTS`].
    pub fn new(
        set: &Labelled,
        requests: usize,
        seed: u64,
        form: BodyForm,
    ) -> Result<Self, WorkloadError> {
        let images = set.images.len();
        if images == 0 || u32::try_from(images).is_err() {
            return Err(WorkloadError::Images(images));
        }
        if images != set.labels.len() {
            return Err(WorkloadError::Labels { images, labels: set.labels.len() });
        }
        if requests == 0 || requests > MAX_REQUESTS {
            return Err(WorkloadError::Requests(requests));
        }
        let order = shuffled_passes(images, requests, &mut Rng::new(seed));
        let mut bodies = vec![None; images];
        for &image in &order {
            let image = image as usize;
            if bodies[image].is_none() {
                let body = encode(set, image, form)
                    .map_err(|source| WorkloadError::Encode { image, source })?;
                bodies[image] = Some(body);
            }
        }
        Ok(Self { order, bodies, labels: set.labels.clone(), seed, form })
    }

    /// How many requests are planned.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none; never for a constructed workload.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The request at `index`; `None` beyond the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Planned<'_>> {
        let image = *self.order.get(index)? as usize;
        let body = self.bodies.get(image)?.as_ref()?;
        Some(Planned { image, label: *self.labels.get(image)?, body })
    }

    /// The seed it was made from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How its tensors travel.
    #[must_use]
    pub fn form(&self) -> BodyForm {
        self.form
    }

    /// When each request should be sent, counted from the start, ascending; `None` for a closed
    /// loop.
    #[must_use]
    pub fn arrivals(&self, pace: Pace) -> Option<Vec<Duration>> {
        let gap = 1.0 / pace.rate()?.get();
        // Another stream than the order's, so that the pace does not change what is asked.
        let mut rng = Rng::new(self.seed ^ 0x61C8_8646_80B5_83EB);
        let mut at = 0.0_f64;
        let times = (0..self.len()).map(|index| match pace {
            Pace::Poisson(_) => {
                at -= rng.unit().ln() * gap;
                Duration::from_secs_f64(at)
            }
            _ => Duration::from_secs_f64(index as f64 * gap),
        });
        Some(times.collect())
    }
}

fn shuffled_passes(images: usize, requests: usize, rng: &mut Rng) -> Vec<u32> {
    let mut pass: Vec<u32> = (0..images).map(|image| image as u32).collect();
    let mut order = Vec::with_capacity(requests);
    while order.len() < requests {
        for last in (1..pass.len()).rev() {
            pass.swap(last, rng.below(last as u64 + 1) as usize);
        }
        order.extend(pass.iter().take(requests - order.len()));
    }
    order
}

fn encode(set: &Labelled, image: usize, form: BodyForm) -> Result<Encoded, ProtocolError> {
    let values: Vec<f32> = set.images[image].iter().map(|&v| f32::from(v) / 255.0).collect();
    let tensor = Tensor::from_f32(set.input.clone(), set.shape.clone(), &values)?;
    let mut request = InferRequest { inputs: vec![tensor], ..InferRequest::default() };
    let binary = form == BodyForm::Binary;
    if binary {
        request.parameters.set("binary_data_output", Parameter::Bool(true));
    }
    request.encode(binary)
}

/// A workload that cannot be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// No images, or too many.
    #[error("{0} labelled images; expected 1 to 4294967295")]
    Images(usize),
    /// Images and labels do not pair up.
    #[error("{images} labelled images but {labels} labels")]
    Labels {
        /// How many images.
        images: usize,
        /// How many labels.
        labels: usize,
    },
    /// Too few or too many requests.
    #[error("{0} requests; expected 1 to {MAX_REQUESTS}")]
    Requests(usize),
    /// An image does not fit the shape.
    #[error("image {image}: {source}")]
    Encode {
        /// Its index.
        image: usize,
        /// What does not fit.
        source: ProtocolError,
    },
}

#[cfg(test)]
mod tests;

//! An array whose first axis counts samples, taken apart for one input of a model. Pure.

use midspan_runtime::{Dim, Tensor, TensorSpec};

/// The samples of one array for one input.
pub(super) struct Rows<'a> {
    array: &'a Tensor,
    /// Elements of a string array, which differ in length.
    strings: Vec<&'a [u8]>,
    /// Dimensions of a sample.
    shape: Vec<usize>,
    count: usize,
}

impl<'a> Rows<'a> {
    /// A sample is a row, given as a batch of one where the model has a batch; where the batch is
    /// of a fixed size, a sample is as many rows.
    pub(super) fn of(array: &'a Tensor, spec: &TensorSpec) -> Result<Self, String> {
        if array.element() != spec.element {
            return Err(format!(
                "it holds {}, but input \"{}\" is {}: convert it first",
                array.element(),
                spec.name,
                spec.element
            ));
        }
        let unsuitable = || {
            format!(
                "its shape {:?} is none of samples along the first axis for input \"{}\" of shape {}",
                array.shape(),
                spec.name,
                spec.dims_text()
            )
        };
        let Some((all, row)) = array.shape().split_first() else { return Err(unsuitable()) };
        let batch = match spec.dims.first() {
            _ if array.shape().len() != spec.dims.len() => None,
            Some(Dim::Fixed(size)) => Some(*size),
            Some(Dim::Symbolic(_)) => Some(1),
            None => None,
        };
        // Without known dimensions a model most often has a batch.
        let batch = if spec.dims.is_empty() { Some(1) } else { batch };
        let shape: Vec<usize> = batch.into_iter().chain(row.iter().copied()).collect();
        let group = batch.unwrap_or(1);
        if group == 0 || all % group != 0 || !spec.admits(&shape) {
            return Err(unsuitable());
        }
        Ok(Self { array, strings: array.view().strings().collect(), shape, count: all / group })
    }

    /// Number of samples.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// One sample.
    pub(super) fn sample(&self, index: usize) -> Result<Tensor, String> {
        let part = |all: usize| {
            let size = all / self.count.max(1);
            index * size..(index + 1) * size
        };
        let element = self.array.element();
        if element.size().is_none() {
            let strings = self.strings.get(part(self.strings.len())).unwrap_or_default();
            return Tensor::from_strings(self.shape.clone(), strings)
                .map_err(|error| error.to_string());
        }
        let bytes = self.array.bytes().get(part(self.array.bytes().len())).unwrap_or_default();
        Tensor::new(element, self.shape.clone(), bytes.to_vec()).map_err(|error| error.to_string())
    }
}

/// Classes out of an array of integers that are not negative, one a sample.
pub(super) fn classes(array: &Tensor) -> Result<Vec<usize>, String> {
    let refuse = || {
        format!(
            "labels must be integers from 0 on, one a sample, not {} {:?}",
            array.element(),
            array.shape()
        )
    };
    let column = matches!(array.shape(), [_] | [_, 1]);
    let size = array.element().size().filter(|_| column && is_integer(array)).ok_or_else(refuse)?;
    let signed = array.element().oip_name().starts_with("INT");
    let class = |item: &[u8]| -> Option<usize> {
        let mut word: [u8; 8] = [0; 8];
        word[..item.len()].copy_from_slice(item);
        let negative = signed && item.last().is_some_and(|byte| *byte > 127);
        usize::try_from(u64::from_le_bytes(word)).ok().filter(|_| !negative)
    };
    array.bytes().chunks_exact(size).map(class).collect::<Option<_>>().ok_or_else(refuse)
}

fn is_integer(array: &Tensor) -> bool {
    let name = array.element().oip_name();
    name.starts_with("INT") || name.starts_with("UINT")
}

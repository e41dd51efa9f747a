//! Rows of a batch: taking some out, putting parts together, and running a model of fixed batch
//! size row by row. Rows are independent; order is the caller's to keep.

use bytes::{Bytes, BytesMut};
use midspan_protocol::Datatype;
use midspan_runtime::{ElementType, Tensor, TensorRef};

use crate::error::NodeError;

/// A tensor between two steps: checked, and sharing the memory that it came in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Blob {
    pub(crate) element: ElementType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Bytes,
}

impl Blob {
    /// A model's output.
    pub(crate) fn from_tensor(tensor: Tensor) -> Self {
        let (element, shape) = (tensor.element(), tensor.shape().to_vec());
        Self { element, shape, bytes: tensor.into_bytes().into() }
    }

    /// A protocol tensor, whose data was checked against its shape.
    pub(crate) fn from_protocol(tensor: &midspan_protocol::Tensor) -> Option<Self> {
        let element = ElementType::from_oip(tensor.datatype.as_str())?;
        let shape = tensor.shape.iter().map(|dim| usize::try_from(*dim).ok());
        Some(Self { element, shape: shape.collect::<Option<_>>()?, bytes: tensor.data.clone() })
    }

    /// As a protocol tensor called `name`.
    pub(crate) fn to_protocol(&self, name: &str) -> Result<midspan_protocol::Tensor, NodeError> {
        let datatype = Datatype::parse(self.element.oip_name()).ok_or_else(|| {
            NodeError::Execution(format!("output '{name}' has a type without a protocol name"))
        })?;
        let shape = self.shape.iter().map(|dim| *dim as u64).collect();
        Ok(midspan_protocol::Tensor::new(name, datatype, shape, self.bytes.clone())?)
    }

    /// A view for an executor or the codec.
    pub(crate) fn view(&self) -> Result<TensorRef<'_>, NodeError> {
        TensorRef::new(self.element, &self.shape, &self.bytes)
            .map_err(|error| NodeError::Input(error.to_string()))
    }

    /// Rows of the batch; 1 for a scalar.
    pub(crate) fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Bytes of one row; `None` when rows have no fixed size (strings).
    fn row_bytes(&self) -> Option<usize> {
        let elements = self.shape.get(1..).unwrap_or(&[]).iter().product::<usize>();
        Some(elements * self.element.size()?)
    }

    /// One row's bytes.
    pub(crate) fn row(&self, row: usize) -> Option<Bytes> {
        let size = self.row_bytes()?;
        let start = row.checked_mul(size)?;
        (start + size <= self.bytes.len()).then(|| self.bytes.slice(start..start + size))
    }

    /// The rows at `indices`, in that order; without a copy when they are all of them.
    pub(crate) fn select(&self, indices: &[usize]) -> Option<Self> {
        if indices.len() == self.rows() && indices.iter().enumerate().all(|(at, row)| at == *row) {
            return Some(self.clone());
        }
        if let [only] = indices {
            return Some(self.with_rows(1, self.row(*only)?));
        }
        let mut bytes = BytesMut::with_capacity(indices.len() * self.row_bytes()?);
        for row in indices {
            bytes.extend_from_slice(&self.row(*row)?);
        }
        Some(self.with_rows(indices.len(), bytes.freeze()))
    }

    fn with_rows(&self, rows: usize, bytes: Bytes) -> Self {
        let mut shape = self.shape.clone();
        if let Some(first) = shape.first_mut() {
            *first = rows;
        }
        Self { element: self.element, shape, bytes }
    }

    /// Several batches one after the other; `None` when their rows differ in form.
    pub(crate) fn concat(parts: &[Self]) -> Option<Self> {
        let first = parts.first()?;
        let same = |part: &Self| {
            part.element == first.element && part.shape.get(1..) == first.shape.get(1..)
        };
        if parts.len() == 1 || !parts.iter().all(same) || first.shape.is_empty() {
            return (parts.len() == 1).then(|| first.clone());
        }
        let mut bytes = BytesMut::with_capacity(parts.iter().map(|part| part.bytes.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(&part.bytes));
        Some(first.with_rows(parts.iter().map(Self::rows).sum(), bytes.freeze()))
    }

    /// A batch of rows of one form, from their bytes.
    pub(crate) fn of_rows(element: ElementType, row_shape: &[usize], rows: &[Bytes]) -> Self {
        let mut bytes = BytesMut::with_capacity(rows.iter().map(Bytes::len).sum());
        rows.iter().for_each(|row| bytes.extend_from_slice(row));
        let shape = std::iter::once(rows.len()).chain(row_shape.iter().copied()).collect();
        Self { element, shape, bytes: bytes.freeze() }
    }
}

/// Named tensors of one run.
pub(crate) type Named = Vec<(String, Blob)>;

/// Splits a batch for a model that takes one row at a time; the batch itself for any other.
pub(crate) fn split(inputs: Named, row_by_row: bool) -> Result<Vec<Named>, NodeError> {
    let rows = inputs.first().map_or(1, |input| input.1.rows());
    if !row_by_row || rows == 1 {
        return Ok(vec![inputs]);
    }
    let part = |row: usize| {
        let blobs = inputs.iter().map(|(name, blob)| Some((name.clone(), blob.select(&[row])?)));
        blobs.collect::<Option<Named>>()
    };
    let parts: Option<Vec<Named>> = (0..rows).map(part).collect();
    parts.ok_or_else(|| NodeError::Input("this model takes one row at a time".into()))
}

/// Puts the outputs of split runs together, output by output.
pub(crate) fn join(mut runs: Vec<Vec<Blob>>) -> Result<Vec<Blob>, NodeError> {
    if runs.len() <= 1 {
        return Ok(runs.pop().unwrap_or_default());
    }
    let outputs = runs.first().map_or(0, Vec::len);
    let joined = (0..outputs).map(|output| {
        let parts: Option<Vec<Blob>> = runs.iter().map(|run| run.get(output).cloned()).collect();
        Blob::concat(&parts?)
    });
    let joined: Option<Vec<Blob>> = joined.collect();
    joined.ok_or_else(|| {
        NodeError::Execution("rows of one batch gave outputs of different form".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(rows: usize) -> Blob {
        let bytes = (0..rows * 2).map(|value| u8::try_from(value).unwrap());
        Blob { element: ElementType::U8, shape: vec![rows, 2], bytes: bytes.collect() }
    }

    #[test]
    fn rows_are_taken_and_put_back() {
        let all = blob(4);
        let some = all.select(&[3, 1]).unwrap();
        assert_eq!((some.shape.as_slice(), &some.bytes[..]), (&[2, 2][..], &[6, 7, 2, 3][..]));
        assert_eq!(all.select(&[0, 1, 2, 3]).unwrap(), all);
        assert_eq!(all.select(&[2]).unwrap().bytes, [4, 5][..]);
        assert!(all.select(&[4]).is_none());
        let parts = [all.select(&[0, 1]).unwrap(), all.select(&[2, 3]).unwrap()];
        assert_eq!(Blob::concat(&parts).unwrap(), all);
    }

    #[test]
    fn fixed_batches_run_row_by_row_and_come_back_whole() {
        let parts = split(vec![("x".into(), blob(3))], true).unwrap();
        assert_eq!(parts.len(), 3);
        let outputs = parts.into_iter().map(|mut part| vec![part.remove(0).1]).collect();
        assert_eq!(join(outputs).unwrap(), [blob(3)]);
        assert_eq!(split(vec![("x".into(), blob(3))], false).unwrap().len(), 1);
    }
}

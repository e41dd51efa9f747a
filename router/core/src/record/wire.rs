//! How single values become bytes. Knows no record.

use alloc::vec::Vec;

use super::RecordError;

/// Bytes being read.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// A value before this point is not `what` it was to be.
    pub(super) fn invalid(&self, what: &'static str) -> RecordError {
        RecordError::Invalid { what, at: self.at }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let Some(chunk) = rest.first_chunk::<N>() else {
            return Err(RecordError::Truncated { at: self.bytes.len() });
        };
        self.at += N;
        Ok(*chunk)
    }
}

/// A value with a fixed encoding.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError>;
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Wire for $int {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
                from.array().map(<$int>::from_le_bytes)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.invalid("flag")),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire + Copy + Default, const N: usize> Wire for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(out));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::take(from)?;
        }
        Ok(values)
    }
}

/// A struct whose encoding is that of its fields, in the order given.
macro_rules! fields {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
                // Fields of a struct expression are evaluated in written order.
                Ok(Self { $($field: Wire::take(from)?),* })
            }
        }
    )*};
}

/// A newtype with a public number.
macro_rules! numbers {
    ($($name:ident),* $(,)?) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
                Wire::take(from).map(Self)
            }
        }
    )*};
}

/// A newtype with a checked number: how to get it out and in.
macro_rules! checked {
    ($($name:ident: $what:literal, $get:expr, $new:expr;)*) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let get = $get;
                get(self).put(out);
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
                let value = Wire::take(from)?;
                let new = $new;
                new(value).ok_or_else(|| from.invalid($what))
            }
        }
    )*};
}

/// An enum without values: one byte per variant.
macro_rules! tags {
    ($($name:ident: $what:literal { $($tag:literal = $variant:ident),* $(,)? })*) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let tag: u8 = match self { $(Self::$variant => $tag),* };
                tag.put(out);
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, RecordError> {
                match u8::take(from)? {
                    $($tag => Ok(Self::$variant),)*
                    _ => Err(from.invalid($what)),
                }
            }
        }
    )*};
}

pub(super) use {checked, fields, numbers, tags};

//! A cursor over JSON text. Strict in all that RFC 8259 says; every container is bounded in depth
//! and in members, so that no text overflows the stack or outgrows its own size.

use std::{borrow::Cow, collections::BTreeSet};

use super::{Fault, MAX_MEMBERS, number::Number};

/// Containers inside of one another. The protocol needs 5 and tensor data bounds its own depth.
const MAX_DEPTH: usize = 64;

/// Whether a skipped value may be one of the tokens that JSON lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bare {
    /// Strict JSON.
    Refused,
    /// `NaN`, `Infinity` and `-Infinity` pass, to be judged when they are read.
    Passed,
}

/// A position in JSON text.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// At the start of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// Bytes from here to the end.
    pub(crate) fn remaining(&self) -> usize {
        self.text.len() - self.at
    }

    /// The text from `start` to here.
    pub(crate) fn since(&self, start: &Self) -> &'a str {
        self.text.get(start.at..self.at).unwrap_or_default()
    }

    /// The next byte, not consumed.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes whitespace.
    #[inline]
    pub(crate) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Passes `byte` if it is next.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let taken = self.peek() == Some(byte);
        self.at += usize::from(taken);
        taken
    }

    /// Passes `word` if it is next; what follows it is the caller's to check.
    #[inline]
    pub(crate) fn word(&mut self, word: &str) -> bool {
        let taken = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += if taken { word.len() } else { 0 };
        taken
    }

    /// What is here is not what should be.
    #[cold]
    pub(crate) fn expected(&self, what: &str) -> Fault {
        Fault::form(format!("expected {what}, found {} at byte {}", self.found(), self.at))
    }

    /// What the next byte starts, in words.
    #[cold]
    pub(crate) fn found(&self) -> String {
        let Some(next) = self.text.get(self.at..).and_then(|rest| rest.chars().next()) else {
            return "the end".to_owned();
        };
        match next {
            '"' => "a string".to_owned(),
            '[' => "an array".to_owned(),
            '{' => "an object".to_owned(),
            '-' | '0'..='9' => "a number".to_owned(),
            't' | 'f' => "a boolean".to_owned(),
            'n' => "null".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// Whether a value of some type starts here.
    #[cold]
    pub(crate) fn at_value(&self) -> bool {
        matches!(self.peek(), Some(b'"' | b'[' | b'{' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n'))
    }

    /// Nothing but whitespace is left.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// An object; `member` reads the value of each member.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.open(b'{', "an object")?;
        let mut seen = BTreeSet::new();
        if self.take(b'}') {
            return self.close();
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.expected("':'"));
            }
            self.space();
            member(self, &name).map_err(|fault| fault.in_member(&name))?;
            if seen.len() == MAX_MEMBERS {
                return Err(Fault::form(format!("an object has more than {MAX_MEMBERS} members")));
            }
            if seen.contains(&name) {
                return Err(Fault::form("given twice").in_member(&name));
            }
            seen.insert(name);
            self.space();
            if self.take(b'}') {
                return self.close();
            }
            if !self.take(b',') {
                return Err(self.expected("',' or '}'"));
            }
        }
    }

    /// An array; `element` reads each element, given its index.
    pub(crate) fn array(
        &mut self,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.open(b'[', "an array")?;
        if self.take(b']') {
            return self.close();
        }
        for index in 0.. {
            self.space();
            element(self, index).map_err(|fault| fault.in_element(index))?;
            self.space();
            if self.take(b']') {
                break;
            }
            if !self.take(b',') {
                return Err(self.expected("',' or ']'"));
            }
        }
        self.close()
    }

    fn open(&mut self, bracket: u8, what: &str) -> Result<(), Fault> {
        if !self.take(bracket) {
            return Err(self.expected(what));
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fault::form(format!("nested deeper than {MAX_DEPTH}")));
        }
        self.space();
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        self.depth -= 1;
        Ok(())
    }

    /// `None` for null, otherwise what `read` reads.
    pub(crate) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        if self.word("null") { Ok(None) } else { read(self).map(Some) }
    }

    /// A string, borrowed unless it has escapes.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        let start = self.at;
        if !self.take(b'"') {
            return Err(self.expected("a string"));
        }
        let rest = &self.text.as_bytes()[self.at..];
        let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
        self.at += plain.unwrap_or(rest.len());
        if self.take(b'"') {
            return Ok(Cow::Borrowed(&self.text[start + 1..self.at - 1]));
        }
        self.escaped(start).map(Cow::Owned)
    }

    /// The rest of a string that has an escape, or a fault.
    #[cold]
    fn escaped(&mut self, start: usize) -> Result<String, Fault> {
        loop {
            match self.peek() {
                Some(b'"') => break,
                // Whatever follows a backslash, it does not end the string.
                Some(b'\\') => self.at += 2,
                Some(0..=0x1f) => {
                    return Err(Fault::form(format!(
                        "a control character in a string at byte {}",
                        self.at
                    )));
                }
                Some(_) => self.at += 1,
                None => {
                    self.at = self.text.len();
                    return Err(Fault::form(format!("a string without end at byte {start}")));
                }
            }
        }
        self.at += 1;
        // Both ends are quotes, so that the slice cuts no character.
        serde_json::from_str(&self.text[start..self.at])
            .map_err(|_| Fault::form(format!("a bad escape in the string at byte {start}")))
    }

    /// A number.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Result<Number<'a>, Fault> {
        if !matches!(self.peek(), Some(b'-' | b'0'..=b'9')) {
            return Err(self.expected("a number"));
        }
        let (number, end) = Number::scan(self.text, self.at).map_err(Fault::no_number)?;
        self.at = end;
        Ok(number)
    }

    /// A non-negative integer, written without fraction or exponent.
    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        let what = "a non-negative integer";
        let (start, number) = (*self, self.number()?);
        number.text().parse().map_err(|_| {
            let text = crate::error::clip(number.text());
            Fault::form(format!("expected {what}, found {text} at byte {}", start.at))
        })
    }

    /// Passes a value of any type, checking its form.
    pub(crate) fn skip(&mut self, bare: Bare) -> Result<(), Fault> {
        match self.peek() {
            Some(b'{') => self.object(|reader, _name| reader.skip(bare)),
            Some(b'[') => self.array(|reader, _index| reader.skip(bare)),
            Some(b'"') => self.string().map(drop),
            _ if self.word("true") || self.word("false") || self.word("null") => Ok(()),
            _ if bare == Bare::Passed && self.bare_float().is_some() => Ok(()),
            _ => self.number().map(drop),
        }
    }

    /// `NaN`, `Infinity` or `-Infinity`, if it is next.
    #[cold]
    pub(crate) fn bare_float(&mut self) -> Option<f64> {
        [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)]
            .into_iter()
            .find_map(|(word, value)| self.word(word).then_some(value))
    }
}

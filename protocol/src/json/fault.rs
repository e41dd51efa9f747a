//! Why a message is refused: what is wrong, and at which member. Built from the inside out, so
//! that a path costs nothing until there is a fault.

use crate::ProtocolError;

/// One fault. Boxed, so that results on the hot path stay small.
#[derive(Debug)]
pub(crate) struct Fault(Box<Kind>);

#[derive(Debug)]
enum Kind {
    /// The JSON has the wrong form at `path`.
    Form { path: String, problem: String },
    /// The data of the tensor being read is wrong.
    Data(String),
    /// A named tensor is wrong.
    Tensor { name: String, problem: String },
}

impl Fault {
    /// The JSON has the wrong form here.
    #[cold]
    pub(crate) fn form(problem: impl Into<String>) -> Self {
        Self(Box::new(Kind::Form { path: String::new(), problem: problem.into() }))
    }

    /// No number can go on as it does at `at`.
    #[cold]
    pub(crate) fn no_number(at: usize) -> Self {
        Self::form(format!("not a JSON number at byte {at}"))
    }

    /// The form is right, but a tensor's contents are not.
    #[cold]
    pub(crate) fn data(problem: impl Into<String>) -> Self {
        Self(Box::new(Kind::Data(problem.into())))
    }

    /// Member `name` is not there.
    #[cold]
    pub(crate) fn missing(name: &str) -> Self {
        Self::form("required, but missing").in_member(name)
    }

    /// The fault is inside of member `name`.
    #[cold]
    pub(crate) fn in_member(self, name: &str) -> Self {
        self.within(|path| match path.chars().next() {
            None | Some('[') => format!("{}{path}", crate::error::clip(name)),
            _ => format!("{}.{path}", crate::error::clip(name)),
        })
    }

    /// The fault is inside of element `index`.
    #[cold]
    pub(crate) fn in_element(self, index: usize) -> Self {
        self.within(|path| match path.chars().next() {
            None | Some('[') => format!("[{index}]{path}"),
            _ => format!("[{index}].{path}"),
        })
    }

    /// The fault is at element `index` of a tensor, counted in row-major order.
    #[cold]
    pub(crate) fn at_value(mut self, index: usize) -> Self {
        if let Kind::Data(problem) = &mut *self.0 {
            *problem = format!("element {index}: {problem}");
        }
        self
    }

    /// The tensor whose contents are wrong is called `name`, if its name is known yet.
    #[cold]
    pub(crate) fn of_tensor(self, name: Option<&str>) -> Self {
        match (*self.0, name) {
            (Kind::Data(problem), Some(name)) => {
                Self(Box::new(Kind::Tensor { name: name.to_owned(), problem }))
            }
            (Kind::Data(problem), None) => Self::form(problem),
            (other, _) => Self(Box::new(other)),
        }
    }

    /// As the error that callers see; `tensor` makes the one about a named tensor.
    pub(crate) fn into_error(self, tensor: fn(&str, String) -> ProtocolError) -> ProtocolError {
        match *self.0 {
            Kind::Form { path, problem } if path.is_empty() => ProtocolError::Json(problem),
            Kind::Form { path, problem } => {
                ProtocolError::Json(format!("{}: {problem}", crate::error::clip(&path)))
            }
            Kind::Data(problem) => ProtocolError::Json(problem),
            Kind::Tensor { name, problem } => tensor(&name, problem),
        }
    }

    fn within(mut self, prefix: impl FnOnce(&str) -> String) -> Self {
        if let Kind::Form { path, .. } = &mut *self.0 {
            *path = prefix(path);
        }
        self
    }
}

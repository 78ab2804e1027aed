//! Errors of this crate and of gdrcopy-core as Python exceptions.
#![forbid(unsafe_code)]

use gdrcopy_core::error::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub(crate) enum Refusal {
    Closed,
    Library(Error),
    Python(PyErr),
}

pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

pub(crate) fn invalid<T>(text: String) -> Result<T> {
    Err(PyValueError::new_err(text).into())
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Library(error)
    }
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Refusal {
        Refusal::Python(error)
    }
}

impl From<Refusal> for PyErr {
    fn from(refusal: Refusal) -> PyErr {
        match refusal {
            Refusal::Closed => PyValueError::new_err("the mapping is closed: make another one"),
            Refusal::Python(error) => error,
            Refusal::Library(error) => Python::attach(|py| {
                let arguments = (error.errno(), error.to_string());
                let module = py.import("gdrcopy._error");
                match module.and_then(|module| module.getattr("Error")?.call1(arguments)) {
                    Ok(value) => PyErr::from_value(value),
                    Err(failure) => failure,
                }
            }),
        }
    }
}

//! The tools, one module each, with its options, `run`, and its text output.

pub(crate) mod apiperf;
pub(crate) mod compare;
pub(crate) mod copies;
pub(crate) mod doctor;
pub(crate) mod pplat;
pub(crate) mod ps;
pub(crate) mod trace;
pub(crate) mod tune;

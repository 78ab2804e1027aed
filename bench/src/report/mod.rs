//! Results as text, JSON and a chart.

pub(crate) mod json;
pub(crate) mod svg;
pub(crate) mod text;

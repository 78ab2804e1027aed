//! Results for programs, a record for each measurement.
#![forbid(unsafe_code)]

use anyhow::Result;
use serde::Serialize;

/// A line of CSV for each record, below one of names.
///
/// # Errors
/// A record is not flat.
pub fn lines_of_csv<R: Serialize>(records: impl IntoIterator<Item = R>) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.serialize(record)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

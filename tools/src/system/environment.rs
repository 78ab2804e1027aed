//! Environment variables that a library reads when it is loaded and first used.

use std::env;
use std::str::FromStr;

/// Variables and their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Environment(Vec<(String, String)>);

impl Environment {
    pub(crate) fn new(name: &str, value: &str) -> Environment {
        Environment(vec![(name.into(), value.into())])
    }

    /// How reports call a library that was loaded with these variables.
    pub(crate) fn label(&self) -> String {
        let values = self.0.iter().map(|(name, value)| {
            let short = name.strip_prefix("GDRCOPY_").unwrap_or(name);
            format!("{}={value}", short.to_lowercase())
        });
        values.collect::<Vec<_>>().join(",")
    }

    /// Runs `work` with the variables set, and restores the old values.
    ///
    /// # Safety
    /// No other thread may read or write the environment while this runs.
    pub(crate) unsafe fn during<R>(&self, work: impl FnOnce() -> R) -> R {
        let old: Vec<_> = self.0.iter().map(|(name, _)| env::var_os(name)).collect();
        for (name, value) in &self.0 {
            // SAFETY: no other thread uses the environment: contract of this function.
            unsafe { env::set_var(name, value) }
        }
        let result = work();
        for ((name, _), old) in self.0.iter().zip(old) {
            // SAFETY: as above.
            unsafe {
                match old {
                    Some(value) => env::set_var(name, value),
                    None => env::remove_var(name),
                }
            }
        }
        result
    }
}

impl FromStr for Environment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = |word: &str| match word.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(format!("`{word}` is not NAME=VALUE")),
        };
        let pairs = text.split(',').map(pair).collect::<Result<_, _>>();
        pairs.map(Environment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_drop_the_common_prefix() {
        let environment: Environment = "GDRCOPY_LOG_LEVEL=3,OTHER=x".parse().unwrap();
        assert_eq!(environment.label(), "log_level=3,other=x");
        assert!("GDRCOPY_LOG_LEVEL".parse::<Environment>().is_err());
        assert!("=8".parse::<Environment>().is_err());
    }
}

//! Options of which each GPU can have its own value.
#![forbid(unsafe_code)]

use std::fmt::{self, Display};
use std::str::FromStr;

/// A value for each GPU, from the first on; the last one is for all GPUs behind it, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerGpu<T>(Vec<T>);

impl<T> PerGpu<T> {
    /// The same for all GPUs.
    pub fn all(value: T) -> Self {
        PerGpu(vec![value])
    }

    /// The value of one GPU.
    pub fn of(&self, gpu: usize) -> &T {
        let last = self.0.len() - 1;
        &self.0[gpu.min(last)]
    }

    /// How many values there are, at least one.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Reads values between commas.
    ///
    /// # Errors
    /// The error of `read` for the first invalid value.
    pub fn read<E>(text: &str, read: impl Fn(&str) -> Result<T, E>) -> Result<Self, E> {
        text.split(',')
            .map(read)
            .collect::<Result<_, _>>()
            .map(PerGpu)
    }
}

impl<T: FromStr> FromStr for PerGpu<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        PerGpu::read(text, str::parse)
    }
}

impl<T: Display> Display for PerGpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, value) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_is_for_the_rest() {
        let values: PerGpu<u32> = "3,1,2".parse().unwrap();
        assert_eq!(
            (0..5).map(|gpu| *values.of(gpu)).collect::<Vec<_>>(),
            [3, 1, 2, 2, 2]
        );
        assert_eq!(*PerGpu::all(7).of(9), 7);
        assert_eq!(values.to_string(), "3,1,2");
        assert!("3,".parse::<PerGpu<u32>>().is_err());
        assert!("".parse::<PerGpu<u32>>().is_err());
    }
}

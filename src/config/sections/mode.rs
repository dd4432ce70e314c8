//! Modes: whether spans go to a recording, to other profilers, or to both.

use crate::encoding::encoded_as;
use crate::error::{Error, ErrorKind};
use std::fmt;
use std::ops::BitOr;

/// Where spans go while a recording runs; torch's `ProfilerState`.
///
/// Compatible modes are joined by `|`, or by `+` in `KINETO_MODE`: `kineto+nvtx` records spans and sends them to NVTX. A mode
/// without Kineto records nothing: its traces are empty and say why.
///
/// ```
/// use tracing_kineto::{KinetoLayer, Mode, Modes};
///
/// assert_eq!(Modes::parse("kineto+nvtx")?, Mode::Kineto | Mode::Nvtx);
/// let builder = KinetoLayer::builder().mode(Mode::Kineto | Mode::Nvtx);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Nothing is recorded, even after a start (`Disabled`, 0).
    Disabled,
    /// Spans become NVTX ranges (`NVTX`, 3).
    Nvtx,
    /// Spans become ITT tasks, for VTune (`ITT`, 4). Needs the feature `itt`.
    #[cfg(feature = "itt")]
    Itt,
    /// The program's own observers receive spans (`PRIVATEUSE1`, 5).
    PrivateUse1,
    /// Spans and device activities are recorded (`KINETO`, 6; `KINETO_PRIVATEUSE1`, 9, if the program has its own collector).
    /// The default.
    Kineto,
    /// Spans are recorded, and events measure CUDA devices' work for them instead of CUPTI (`KINETO_GPU_FALLBACK`, 7): see
    /// [`CudaEvents`](crate::integration::CudaEvents).
    KinetoGpuFallback,
    /// The same with the program's own [timer](crate::Devices::timer)
    /// (`KINETO_PRIVATEUSE1_FALLBACK`, 8).
    KinetoPrivateUse1Fallback,
}

/// One mode, or several compatible ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Modes(u8);

// By name: the numbers depend on the features. This build may lack a mode.
encoded_as! {
    Modes as String: |modes| modes.to_string(), |names| Some(Modes::parse(&names).unwrap_or_default());
}

impl Mode {
    /// All modes.
    pub const ALL: &[Mode] = &[
        Mode::Disabled,
        Mode::Nvtx,
        #[cfg(feature = "itt")]
        Mode::Itt,
        Mode::PrivateUse1,
        Mode::Kineto,
        Mode::KinetoGpuFallback,
        Mode::KinetoPrivateUse1Fallback,
    ];

    /// The modes that record; at most one of them at a time.
    const RECORDING: [Mode; 3] = [Mode::Kineto, Mode::KinetoGpuFallback, Mode::KinetoPrivateUse1Fallback];

    /// Returns its name, that of torch's state in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::Disabled => "disabled",
            Mode::Nvtx => "nvtx",
            #[cfg(feature = "itt")]
            Mode::Itt => "itt",
            Mode::PrivateUse1 => "privateuse1",
            Mode::Kineto => "kineto",
            Mode::KinetoGpuFallback => "kineto_gpu_fallback",
            Mode::KinetoPrivateUse1Fallback => "kineto_privateuse1_fallback",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Parses the name of one of torch's eleven states.
    ///
    /// # Errors
    /// If the name is unknown or the state is not supported; the error gives an alternative.
    fn of_state(name: &str) -> Result<Mode, &'static str> {
        let name = name.trim().to_ascii_lowercase();
        if let Some(mode) = Mode::ALL.iter().copied().find(|mode| mode.as_str() == name) {
            return Ok(mode);
        }
        match name.as_str() {
            "kineto_privateuse1" => Ok(Mode::Kineto),
            "cpu" => Err("torch's legacy profiler is not supported; use kineto with activities cpu"),
            "cuda" => Err("torch's legacy profiler is not supported; use kineto with activities cuda"),
            "itt" => Err("ITT is not in this build; use the crate's feature itt"),
            "kineto_ondemand" => Err("an external request needs no mode; use kineto, and KINETO_USE_DAEMON"),
            _ => Err(
                "expected disabled, nvtx, itt, privateuse1, kineto, kineto_gpu_fallback, kineto_privateuse1_fallback, \
                 or several joined by +",
            ),
        }
    }
}

impl Modes {
    /// Returns whether the set contains that mode.
    pub const fn contains(self, mode: Mode) -> bool {
        self.0 & mode.bit() != 0
    }

    /// Returns whether the modes are compatible: `disabled` excludes all others, and at most one records.
    pub(crate) fn are_compatible(self) -> bool {
        let alone = !self.contains(Mode::Disabled) || self.0 == Mode::Disabled.bit();
        alone && Mode::RECORDING.iter().filter(|mode| self.contains(**mode)).count() <= 1
    }

    /// Returns whether anything is recorded.
    pub(crate) fn has_recording_mode(self) -> bool {
        Mode::RECORDING.iter().any(|mode| self.contains(*mode))
    }

    /// Parses names of torch's states, joined by `+`.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) if a name is not a mode, or modes are incompatible; the text has an alternative.
    pub fn parse(text: &str) -> Result<Modes, Error> {
        let wrong = |text: &str, why| Error::new(ErrorKind::Config, format!("{text:?}: {why}"));
        let mut modes = Modes(0);
        for name in text.split('+') {
            modes.0 |= Mode::of_state(name).map_err(|why| wrong(name.trim(), why))?.bit();
        }
        if modes.are_compatible() {
            Ok(modes)
        } else if modes.contains(Mode::Disabled) {
            Err(wrong(text.trim(), "disabled cannot be combined with another mode"))
        } else {
            Err(wrong(text.trim(), "kineto and its fallbacks exclude each other; use one of them"))
        }
    }
}

impl Default for Modes {
    fn default() -> Modes {
        Modes::from(Mode::Kineto)
    }
}

impl From<Mode> for Modes {
    fn from(mode: Mode) -> Modes {
        Modes(mode.bit())
    }
}

impl BitOr for Mode {
    type Output = Modes;
    fn bitor(self, other: Mode) -> Modes {
        Modes(self.bit() | other.bit())
    }
}

impl BitOr<Mode> for Modes {
    type Output = Modes;
    fn bitor(self, other: Mode) -> Modes {
        Modes(self.0 | other.bit())
    }
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for mode in Mode::ALL.iter().filter(|mode| self.contains(**mode)) {
            write!(f, "{separator}{}", mode.as_str())?;
            separator = "+";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_states_are_modes_or_have_an_alternative() {
        let states = [
            ("Disabled", Some(Mode::Disabled)),
            ("CPU", None),
            ("CUDA", None),
            ("NVTX", Some(Mode::Nvtx)),
            ("ITT", Mode::ALL.iter().copied().find(|mode| mode.as_str() == "itt")),
            ("PRIVATEUSE1", Some(Mode::PrivateUse1)),
            ("KINETO", Some(Mode::Kineto)),
            ("KINETO_GPU_FALLBACK", Some(Mode::KinetoGpuFallback)),
            ("KINETO_PRIVATEUSE1_FALLBACK", Some(Mode::KinetoPrivateUse1Fallback)),
            ("KINETO_PRIVATEUSE1", Some(Mode::Kineto)),
            ("KINETO_ONDEMAND", None),
        ];
        for (state, expected) in states {
            match (Modes::parse(state), expected) {
                (Ok(modes), Some(mode)) => assert_eq!(modes, Modes::from(mode), "{state}"),
                (Err(error), None) => assert!(error.to_string().contains("use "), "{error}"),
                (other, _) => panic!("{state}: {other:?}"),
            }
        }
    }

    #[test]
    fn modes_are_joined_and_formatted() {
        assert_eq!(Modes::parse("kineto + nvtx").unwrap(), Mode::Kineto | Mode::Nvtx);
        assert_eq!((Mode::Kineto | Mode::Nvtx).to_string(), "nvtx+kineto");
        assert!((Mode::Nvtx | Mode::Kineto).has_recording_mode() && !Modes::from(Mode::Nvtx).has_recording_mode());
        assert!(Modes::parse("disabled+nvtx").unwrap_err().to_string().contains("with another mode"));
        let fallback = Modes::parse("nvtx+kineto_gpu_fallback").unwrap();
        assert!(fallback.has_recording_mode() && !fallback.contains(Mode::Kineto));
        for two in ["kineto+kineto_gpu_fallback", "kineto_privateuse1_fallback+kineto_gpu_fallback"] {
            assert!(Modes::parse(two).unwrap_err().to_string().contains("exclude each other"));
        }
        assert!(Modes::parse("").unwrap_err().to_string().contains("expected disabled"));
    }
}

//! Why an action was chosen.

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Why an action was chosen, with the figures that decided.
///
/// A reason is data of the code that chose the action: a struct beside its policy. `Display` is its
/// text for users, `Serialize` its JSON. Give the struct `#[serde(tag = "rule", rename = "...")]`,
/// which names the rule in JSON.
#[derive(Clone, Debug)]
pub struct Reason(Arc<dyn ReasonData>);

impl Reason {
    /// A reason with this data.
    pub fn new<T>(data: T) -> Self
    where
        T: fmt::Display + fmt::Debug + Serialize + PartialEq + Send + Sync + 'static,
    {
        Self(Arc::new(data))
    }

    #[cfg(test)]
    pub(crate) fn data<T: 'static>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }
}

trait ReasonData: fmt::Display + fmt::Debug + Send + Sync {
    fn json(&self) -> serde_json::Result<Box<RawValue>>;
    fn as_any(&self) -> &dyn Any;
    fn equals(&self, other: &dyn ReasonData) -> bool;
}

impl<T> ReasonData for T
where
    T: fmt::Display + fmt::Debug + Serialize + PartialEq + Send + Sync + 'static,
{
    fn json(&self) -> serde_json::Result<Box<RawValue>> {
        to_raw_value(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn ReasonData) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(&*other.0)
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.json().map_err(S::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize)]
    #[serde(tag = "rule", rename = "largest")]
    struct Largest {
        pages: u16,
    }

    impl fmt::Display for Largest {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "largest of all, with {} pages", self.pages)
        }
    }

    #[test]
    fn a_reason_is_its_data() {
        let reason = Reason::new(Largest { pages: 9 });
        assert_eq!(reason.to_string(), "largest of all, with 9 pages");
        let json = serde_json::to_string(&reason).ok();
        assert_eq!(json.as_deref(), Some(r#"{"rule":"largest","pages":9}"#));
        assert_eq!(reason.data::<Largest>().map(|it| it.pages), Some(9));
        assert_eq!(reason, Reason::new(Largest { pages: 9 }));
        assert_ne!(reason, Reason::new(Largest { pages: 8 }));
        assert_ne!(reason, Reason::new("largest"));
    }
}

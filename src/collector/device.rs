//! Devices, as a collector describes them.

use serde_json::{Map, Value};

/// A device: what its rows are called, and its properties.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceDescription {
    /// Its number, which its records carry.
    pub id: i32,
    /// What it is, such as "NVIDIA H200".
    pub name: String,
    /// What its group of rows is called; its label and its name if nothing, such as "GPU 0: NVIDIA H200".
    pub heading: Option<String>,
    /// What stands beside its rows, such as "GPU 0".
    pub label: String,
    /// Groups of rows are shown in the order of this number; those of devices without one below the host's.
    pub order: Option<i64>,
    /// Those of its streams, or of its other parts, that have names.
    pub streams: Vec<Stream>,
    /// What stands in the trace's `deviceProperties`, without id and name, under libkineto's keys.
    pub properties: Vec<(&'static str, i64)>,
    /// What else is known of it and stands nowhere by itself; shapes may use it.
    pub attributes: Vec<(&'static str, i64)>,
}

/// A stream of a device, or another part that has a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its number, which its records carry.
    pub id: u32,
    /// What its row is called.
    pub name: String,
    /// Rows of a device are shown in the order of this number.
    pub order: i64,
}

impl DeviceDescription {
    /// A device without properties, whose label is "GPU `id`".
    pub fn new(id: i32, name: impl Into<String>) -> DeviceDescription {
        DeviceDescription {
            id,
            name: name.into(),
            heading: None,
            label: format!("GPU {id}"),
            order: None,
            streams: Vec::new(),
            properties: Vec::new(),
            attributes: Vec::new(),
        }
    }

    /// Returns a property or attribute, if it is known.
    pub fn property(&self, key: &str) -> Option<i64> {
        self.properties.iter().chain(&self.attributes).find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// Returns its entry in `deviceProperties`.
    pub(crate) fn to_json(&self) -> String {
        let mut entry = Map::new();
        entry.insert("id".to_owned(), self.id.into());
        entry.insert("name".to_owned(), Value::from(self.name.as_str()));
        entry.extend(self.properties.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))));
        Value::Object(entry).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_entry_is_json_whatever_its_name() {
        let mut device = DeviceDescription::new(1, "a \"b\"");
        device.properties = vec![("numSms", 132)];
        let entry: Value = serde_json::from_str(&device.to_json()).unwrap();
        assert_eq!(entry, serde_json::json!({"id": 1, "name": "a \"b\"", "numSms": 132}));
        assert_eq!((device.property("numSms"), device.property("x")), (Some(132), None));
        assert_eq!(device.label, "GPU 1");
    }
}

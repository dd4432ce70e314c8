//! Descriptions of devices by their collectors.

use kineto_base::encoding::encoded;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A device: the names of its rows, and its properties.
///
/// ```
/// use tracing_kineto::integration::{DeviceDescription, Stream};
///
/// let mut device = DeviceDescription::new(0, "NPU X1");
/// device.streams.push(Stream::new(7, "copies"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceDescription {
    /// The number that its records carry.
    pub id: i32,
    /// The product name, such as "NVIDIA H200".
    pub name: String,
    /// The name of its group of rows. By default its label and its name, such as "GPU 0: NVIDIA H200".
    pub heading: Option<String>,
    /// The label of its group of rows, such as "GPU 0".
    pub label: String,
    /// The position of its group of rows. Devices without a position are shown below the host.
    pub order: Option<i64>,
    /// Its streams, or other parts, that have names.
    pub streams: Vec<Stream>,
    /// Its entries in the trace's `deviceProperties`, without id and name, under libkineto's keys.
    pub properties: Vec<(Cow<'static, str>, i64)>,
    /// Further values that are not written to the trace; record layouts may use them.
    pub attributes: Vec<(Cow<'static, str>, i64)>,
}

/// A stream of a device, or another part that gets a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stream {
    /// The number that its records carry.
    pub id: u32,
    /// The name of its row.
    pub name: String,
    /// The position of its row within the device.
    pub order: i64,
}

encoded! {
    DeviceDescription { id, name, heading, label, order, streams, properties, attributes }
    Stream { id, name, order }
}

impl Stream {
    /// Creates a stream from its number and name. Its row is ordered by its number.
    pub fn new(id: u32, name: impl Into<String>) -> Stream {
        Stream { id, name: name.into(), order: id.into() }
    }
}

impl DeviceDescription {
    /// Makes a device without properties, whose label is "GPU `id`".
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
    pub fn to_json(&self) -> String {
        let mut entry = Map::new();
        entry.insert("id".to_owned(), self.id.into());
        entry.insert("name".to_owned(), Value::from(self.name.as_str()));
        entry.extend(self.properties.iter().map(|(key, value)| (key.clone().into_owned(), Value::from(*value))));
        Value::Object(entry).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_entry_escapes_its_name() {
        let mut device = DeviceDescription::new(1, "a \"b\"");
        device.properties = vec![("numSms".into(), 132)];
        let entry: Value = serde_json::from_str(&device.to_json()).unwrap();
        assert_eq!(entry, serde_json::json!({"id": 1, "name": "a \"b\"", "numSms": 132}));
        assert_eq!((device.property("numSms"), device.property("x")), (Some(132), None));
        assert_eq!(device.label, "GPU 1");
    }
}

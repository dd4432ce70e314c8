//! The forms of the model's values in bytes.

use crate::Loss;
use crate::activity::{
    ActivityType, ActivityTypes, Body, CorrelationId, DeviceType, Flow, FlowEnd, FlowKind, RecordScope,
};
use crate::write::OwnedValue;
use kineto_base::encoding::{Encoded, encoded, encoded_as};
use kineto_base::fallible::List;

encoded! {
    Flow { kind, id, end }
}

encoded_as! {
    CorrelationId as u64: |id| id.0, |id| Some(CorrelationId(id));
    ActivityType as u8: |kind| kind.number(), ActivityType::from_number;
    ActivityTypes as u32: |types| types.bits(), |bits| Some(ActivityTypes::from_bits(bits));
    RecordScope as u8: |scope| scope.number(), RecordScope::from_number;
    DeviceType as u8: |kind| kind.number(), |number| DeviceType::ALL.iter().copied().find(|kind| kind.number() == number);
    Loss as String: |loss| loss.as_str().to_owned(), |key| Loss::ALL.iter().copied().find(|loss| loss.as_str() == key);
    FlowKind as String: |kind| kind.as_str().to_owned(), |name| FlowKind::ALL.iter().copied().find(|kind| kind.as_str() == name);
    FlowEnd as bool: |end| *end == FlowEnd::Start, |starts| Some(if starts { FlowEnd::Start } else { FlowEnd::Finish });
}

impl Encoded for Body {
    fn encode(&self, out: &mut List<u8>) {
        match *self {
            Body::Slice { start, end } => (0_u8, (start, end)).encode(out),
            Body::Instant { at } => (1_u8, at).encode(out),
            Body::Counter { at } => (2_u8, at).encode(out),
        }
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::decode(from)? {
            0 => {
                let (start, end) = Encoded::decode(from)?;
                Body::Slice { start, end }
            }
            1 => Body::Instant { at: Encoded::decode(from)? },
            2 => Body::Counter { at: Encoded::decode(from)? },
            _ => return None,
        })
    }
}

impl Encoded for OwnedValue {
    fn encode(&self, out: &mut List<u8>) {
        match self {
            OwnedValue::Bool(value) => (0_u8, *value).encode(out),
            OwnedValue::I64(value) => (1_u8, *value).encode(out),
            OwnedValue::U64(value) => (2_u8, *value).encode(out),
            OwnedValue::F64(value) => (3_u8, *value).encode(out),
            OwnedValue::I128(value) => (4_u8, i128::from_ne_bytes(*value).cast_unsigned()).encode(out),
            OwnedValue::U128(value) => (5_u8, u128::from_ne_bytes(*value)).encode(out),
            OwnedValue::Text(text) => (6_u8, text.clone()).encode(out),
            OwnedValue::Json(json) => (7_u8, json.clone()).encode(out),
        }
    }

    fn decode(from: &mut &[u8]) -> Option<Self> {
        Some(match u8::decode(from)? {
            0 => OwnedValue::Bool(Encoded::decode(from)?),
            1 => OwnedValue::I64(Encoded::decode(from)?),
            2 => OwnedValue::U64(Encoded::decode(from)?),
            3 => OwnedValue::F64(Encoded::decode(from)?),
            4 => OwnedValue::I128(u128::decode(from)?.to_ne_bytes()),
            5 => OwnedValue::U128(u128::decode(from)?.to_ne_bytes()),
            6 => OwnedValue::Text(Encoded::decode(from)?),
            7 => OwnedValue::Json(Encoded::decode(from)?),
            _ => return None,
        })
    }
}

//! The clients of the library: the one that calls the functions of the first version, and each subscriber of the second.

use crate::activity::Activity;
use crate::delivery::Callbacks;
use crate::pool::ClientPool;
use crate::selected_fields::SelectedFields;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

/// What one client has set, and its records.
#[derive(Debug)]
pub(crate) struct Client {
    /// The handle of its subscription; 0 for the client of the first version.
    pub(crate) handle: usize,
    pub(crate) name: String,
    /// Whether further subscribers may join.
    pub(crate) allows_others: bool,
    pub(crate) activity: Activity,
    pub(crate) callbacks: Mutex<Option<Callbacks>>,
    pub(crate) pool: ClientPool,
    pub(crate) selected_fields: SelectedFields,
}

impl Client {
    pub(crate) fn new(handle: usize, name: String, allows_others: bool) -> Client {
        Client {
            handle,
            name,
            allows_others,
            activity: Activity::default(),
            callbacks: Mutex::new(None),
            pool: ClientPool::default(),
            selected_fields: SelectedFields::default(),
        }
    }
}

static FIRST: LazyLock<Client> = LazyLock::new(|| Client::new(0, String::new(), false));
static SUBSCRIBERS: LazyLock<RwLock<Arc<[&'static Client]>>> = LazyLock::new(RwLock::default);

/// Returns the client of the first version's functions.
pub(crate) fn first() -> &'static Client {
    &FIRST
}

/// Returns the subscribers of the second version, in the order of their subscription.
pub(crate) fn subscribers() -> Arc<[&'static Client]> {
    SUBSCRIBERS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Calls `each` for every client.
pub(crate) fn for_each(mut each: impl FnMut(&'static Client)) {
    each(first());
    subscribers().iter().for_each(|client| each(client));
}

pub(crate) fn add(client: Client) {
    change(|subscribers| subscribers.push(Box::leak(Box::new(client))));
}

pub(crate) fn remove(handle: usize) {
    change(|subscribers| subscribers.retain(|client| client.handle != handle));
}

pub(crate) fn remove_all() {
    change(Vec::clear);
}

fn change(how: impl FnOnce(&mut Vec<&'static Client>)) {
    let mut subscribers = SUBSCRIBERS.write().unwrap_or_else(PoisonError::into_inner);
    let mut changed = subscribers.to_vec();
    how(&mut changed);
    *subscribers = changed.into();
}

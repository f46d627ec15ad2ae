//! The open connections by owner, the slots that each takes, and which connection is closed when
//! slots run out.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
};

use anneal_core::caller::TenantId;

/// A sixteenth of all slots is reserved for connections without an authenticated call: health
/// probes and new clients.
const RESERVE_DIVISOR: usize = 16;
/// Most connections of one owner that are scanned, oldest first, for one without a call in flight.
const EVICTION_SCAN: usize = 64;

/// Whose calls a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// No call with a credential has come on the connection yet.
    Unauthenticated,
    /// All calls with a credential were this tenant's.
    Tenant(TenantId),
    /// Several tenants have called on the connection: it belongs to a proxy.
    Shared,
}

/// How many slots connections may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// All owners together.
    all: usize,
    /// All owners but [`Owner::Unauthenticated`] together.
    authenticated: usize,
    /// One owner other than [`Owner::Unauthenticated`].
    share: usize,
}

impl Bounds {
    /// Bounds for this number of slots, of which one tenant may take `share_percent`.
    pub(super) fn new(slots: NonZeroU32, share_percent: u32) -> Self {
        let all = slots.get() as usize;
        let authenticated = (all - all.div_ceil(RESERVE_DIVISOR)).max(1);
        let share = (all.saturating_mul(share_percent as usize) / 100).clamp(1, authenticated);
        Self {
            all,
            authenticated,
            share,
        }
    }
}

/// What the table must know about a connection, because it closes idle connections first.
pub(super) trait Activity {
    /// Whether a call is in flight.
    fn is_busy(&self) -> bool;
    /// Whether a call that needs no credential is in flight.
    fn has_unauthenticated_call(&self) -> bool;
    /// When something was last read or written. The unit does not matter; smaller is longer ago.
    fn last_active(&self) -> u64;
}

/// The open connections. Ids ascend in the order in which connections were accepted.
pub(super) struct ConnectionTable<E> {
    bounds: Bounds,
    next_id: u64,
    /// Number of connections.
    count: usize,
    /// Slots that all connections take.
    slots: usize,
    by_owner: HashMap<Owner, OwnerConnections<E>>,
}

/// The connections of one owner, and their slots.
struct OwnerConnections<E> {
    slots: usize,
    connections: BTreeMap<u64, Entry<E>>,
}

struct Entry<E> {
    connection: E,
    slots: usize,
}

impl<E: Activity> ConnectionTable<E> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            next_id: 0,
            count: 0,
            slots: 0,
            by_owner: HashMap::new(),
        }
    }

    /// Number of open connections.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) const fn is_half_full(&self) -> bool {
        self.slots * 2 >= self.bounds.all
    }

    /// Every open connection, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &E> {
        self.by_owner.values().flat_map(|connections_of_owner| {
            connections_of_owner
                .connections
                .values()
                .map(|entry| &entry.connection)
        })
    }

    /// Adds a new unauthenticated connection with one slot. Returns its id, and the connections
    /// that were removed to make room. The caller must close them.
    pub(super) fn insert(&mut self, connection: E) -> (u64, Vec<E>) {
        let id = self.next_id;
        self.next_id += 1;
        self.add(
            Owner::Unauthenticated,
            id,
            Entry {
                connection,
                slots: 1,
            },
        );
        (id, self.evict(Owner::Unauthenticated, id))
    }

    /// Removes a connection. None: it was removed before.
    pub(super) fn remove(&mut self, owner: Owner, id: u64) -> Option<E> {
        self.take_out(owner, id).map(|entry| entry.connection)
    }

    /// Moves a connection to another owner. Returns the connections that were removed to make room.
    /// The caller must close them.
    pub(super) fn change_owner(&mut self, id: u64, from: Owner, to: Owner) -> Vec<E> {
        let Some(entry) = self.take_out(from, id) else {
            return Vec::new();
        };
        self.add(to, id, entry);
        self.evict(to, id)
    }

    /// Sets the slots of a connection, at most one tenant's share. Returns the connections that
    /// were removed to make room. The caller must close them.
    pub(super) fn resize(&mut self, id: u64, owner: Owner, slots: usize) -> Vec<E> {
        let slots = slots.min(self.bounds.share);
        let Some(entry) = self.take_out(owner, id) else {
            return Vec::new();
        };
        self.add(owner, id, Entry { slots, ..entry });
        self.evict(owner, id)
    }

    /// Removes the oldest unauthenticated connection, other than `except`, on which an
    /// unauthenticated call is in flight. None: there is no such connection.
    pub(super) fn remove_unauthenticated_caller(&mut self, except: u64) -> Option<E> {
        let connections = &self.by_owner.get(&Owner::Unauthenticated)?.connections;
        let oldest = connections
            .iter()
            .find(|(id, entry)| **id != except && entry.connection.has_unauthenticated_call());
        let id = *oldest?.0;
        self.remove(Owner::Unauthenticated, id)
    }

    fn add(&mut self, owner: Owner, id: u64, entry: Entry<E>) {
        let connections_of_owner = self
            .by_owner
            .entry(owner)
            .or_insert_with(|| OwnerConnections {
                slots: 0,
                connections: BTreeMap::new(),
            });
        connections_of_owner.slots += entry.slots;
        self.slots += entry.slots;
        self.count += 1;
        connections_of_owner.connections.insert(id, entry);
    }

    fn take_out(&mut self, owner: Owner, id: u64) -> Option<Entry<E>> {
        let connections_of_owner = self.by_owner.get_mut(&owner)?;
        let entry = connections_of_owner.connections.remove(&id)?;
        connections_of_owner.slots -= entry.slots;
        self.slots -= entry.slots;
        self.count -= 1;
        if connections_of_owner.connections.is_empty() {
            self.by_owner.remove(&owner);
        }
        Some(entry)
    }

    /// Removes connections until the bounds hold again after a change of connection `id`:
    /// - connections of its owner, while the owner exceeds its share;
    /// - connections of the authenticated owner with the most slots, while all authenticated owners
    ///   together exceed their part;
    /// - then the oldest unauthenticated ones. There are some, because the others may not take all
    ///   slots, unless there is only one slot.
    fn evict(&mut self, owner: Owner, id: u64) -> Vec<E> {
        let mut evicted = Vec::new();
        while owner != Owner::Unauthenticated && self.slots_of(owner) > self.bounds.share {
            evicted.extend(self.evict_from(owner, id));
        }
        while self.slots - self.slots_of(Owner::Unauthenticated) > self.bounds.authenticated {
            let Some(largest_owner) = self.largest_owner() else {
                break;
            };
            evicted.extend(self.evict_from(largest_owner, id));
        }
        while self.slots > self.bounds.all {
            let oldest = self
                .by_owner
                .get(&Owner::Unauthenticated)
                .and_then(|unauthenticated| unauthenticated.connections.keys().next().copied());
            match oldest {
                // With a single slot, the newest connection gets it.
                Some(oldest) if oldest != id || self.bounds.all > 1 => {
                    evicted.extend(self.remove(Owner::Unauthenticated, oldest));
                }
                _ => {
                    let Some(largest_owner) = self.largest_owner() else {
                        break;
                    };
                    evicted.extend(self.evict_from(largest_owner, id));
                }
            }
        }
        evicted
    }

    fn slots_of(&self, owner: Owner) -> usize {
        self.by_owner
            .get(&owner)
            .map_or(0, |connections_of_owner| connections_of_owner.slots)
    }

    /// The authenticated owner with the most slots.
    fn largest_owner(&self) -> Option<Owner> {
        let authenticated = self
            .by_owner
            .iter()
            .filter(|(owner, _)| **owner != Owner::Unauthenticated);
        authenticated
            .max_by_key(|(_, connections_of_owner)| connections_of_owner.slots)
            .map(|(owner, _)| *owner)
    }

    /// Removes one connection of an owner: among its oldest connections the one that has been idle
    /// for longest, or the oldest if calls are in flight on all of them. Removes `except` only if
    /// the owner has no other connection.
    fn evict_from(&mut self, owner: Owner, except: u64) -> Option<E> {
        let connections = &self.by_owner.get(&owner)?.connections;
        let others = || connections.iter().filter(|(id, _)| **id != except);
        let idle = others()
            .take(EVICTION_SCAN)
            .filter(|(_, entry)| !entry.connection.is_busy());
        let idle = idle.min_by_key(|(_, entry)| entry.connection.last_active());
        let id = idle
            .or_else(|| others().next())
            .map_or(except, |(id, _)| *id);
        self.remove(owner, id)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ANNA: Owner = Owner::Tenant(TenantId(Uuid::from_u128(1)));
    const EVE: Owner = Owner::Tenant(TenantId(Uuid::from_u128(2)));

    /// A connection: its name, whether a call is in flight on it, and when it was last active.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Connection(u64, bool, u64);

    impl Activity for Connection {
        fn is_busy(&self) -> bool {
            self.1
        }

        fn has_unauthenticated_call(&self) -> bool {
            self.1
        }

        fn last_active(&self) -> u64 {
            self.2
        }
    }

    fn table(slots: u32, share_percent: u32) -> ConnectionTable<Connection> {
        ConnectionTable::new(Bounds::new(
            NonZeroU32::new(slots).expect("not 0"),
            share_percent,
        ))
    }

    /// Adds a connection and gives it to an owner. Returns the name of the connection that is
    /// closed to make room.
    fn add_for_owner(
        table: &mut ConnectionTable<Connection>,
        connection: Connection,
        owner: Owner,
    ) -> Option<u64> {
        let (id, mut evicted) = table.insert(connection);
        evicted.extend(table.change_owner(id, Owner::Unauthenticated, owner));
        assert!(
            evicted.len() <= 1,
            "one new slot closes at most one connection: {evicted:?}"
        );
        evicted.first().map(|evicted| evicted.0)
    }

    #[test]
    fn a_tenant_above_its_share_gives_up_its_own_idle_and_oldest_connections() {
        let mut table = table(8, 50);
        for name in 0..4 {
            assert_eq!(
                add_for_owner(&mut table, Connection(name, name != 2, 0), EVE),
                None
            );
        }
        assert_eq!(
            add_for_owner(&mut table, Connection(10, false, 0), ANNA),
            None
        );
        assert_eq!(
            add_for_owner(&mut table, Connection(4, true, 0), EVE),
            Some(2),
            "no call is in flight on it"
        );
        assert_eq!(
            add_for_owner(&mut table, Connection(5, true, 0), EVE),
            Some(0),
            "the oldest, because calls are in flight on all"
        );
        assert_eq!(
            add_for_owner(&mut table, Connection(6, false, 0), EVE),
            Some(1),
            "not the idle connection that was just added"
        );
        assert_eq!(table.len(), 5);
    }

    #[test]
    fn the_connection_that_was_idle_longest_is_closed_first() {
        let mut table = table(8, 50);
        for (name, active) in [(0, 30), (1, 10), (2, 20), (3, 40)] {
            add_for_owner(&mut table, Connection(name, false, active), EVE);
        }
        assert_eq!(
            add_for_owner(&mut table, Connection(4, false, 50), EVE),
            Some(1)
        );
    }

    #[test]
    fn a_new_connection_gets_a_slot_however_many_others_hold() {
        let mut table = table(32, 100);
        for name in 0..100 {
            add_for_owner(&mut table, Connection(name, true, 0), EVE);
        }
        assert_eq!(table.len(), 30, "two slots are reserved");
        assert_eq!(table.insert(Connection(200, true, 0)).1, []);
        assert_eq!(table.insert(Connection(201, false, 0)).1, []);
        for name in 202..300 {
            // Two unauthenticated connections have room: `name - 2` and `name - 1`.
            let evicted = table.insert(Connection(name, false, 0)).1;
            assert_eq!(
                evicted.first().map(|evicted| evicted.0),
                Some(name - 2),
                "the oldest unauthenticated one, busy or not"
            );
        }
        assert_eq!(table.len(), 32);
        let (_, evicted) = table.insert(Connection(300, true, 0));
        assert_eq!(evicted.len(), 1);
        // No connection has the id 1,000, so none is excepted.
        assert_eq!(
            table
                .remove_unauthenticated_caller(1_000)
                .map(|evicted| evicted.0),
            Some(300),
            "an unauthenticated call is in flight on it"
        );
        assert_eq!(
            table.remove_unauthenticated_caller(1_000),
            None,
            "no connection with an unauthenticated call is left"
        );
    }

    #[test]
    fn tenants_that_hold_all_slots_lose_one_to_a_new_tenant() {
        let mut table = table(32, 50);
        for name in 0..16 {
            add_for_owner(&mut table, Connection(name, true, 0), EVE);
            add_for_owner(&mut table, Connection(100 + name, true, 0), Owner::Shared);
        }
        assert_eq!(table.len(), 30, "tenants do not get the reserved slots");
        for name in 0..10 {
            let evicted = add_for_owner(&mut table, Connection(200 + name, true, 0), ANNA);
            assert!(
                evicted.is_some_and(|evicted| evicted < 200),
                "another tenant's connection is closed, not {evicted:?}"
            );
        }
    }

    #[test]
    fn a_connection_that_takes_more_slots_leaves_fewer_for_others() {
        let mut table = table(32, 50);
        for name in 0..10 {
            add_for_owner(&mut table, Connection(name, true, 0), EVE);
        }
        let evicted = table.resize(9, EVE, 10);
        assert_eq!(
            evicted.iter().map(|evicted| evicted.0).collect::<Vec<_>>(),
            [0, 1, 2],
            "nine slots and ten are three above eve's share of sixteen"
        );
        assert_eq!((table.len(), table.slots), (7, 16));
        let unauthenticated: Vec<u64> = (0..8)
            .map(|name| table.insert(Connection(100 + name, true, 0)).0)
            .collect();
        let evicted = table.resize(unauthenticated[7], Owner::Unauthenticated, 13);
        assert_eq!(
            evicted.iter().map(|evicted| evicted.0).collect::<Vec<_>>(),
            [100, 101, 102, 103],
            "16, 7 and 13 slots are four above 32: the oldest unauthenticated ones go"
        );
        assert_eq!(table.slots, 32);
        assert_eq!(
            table.resize(unauthenticated[0], Owner::Unauthenticated, 5),
            [],
            "a connection that was closed takes no slots"
        );
        assert_eq!(
            table.resize(9, EVE, 40).len(),
            6,
            "the connection takes eve's whole share"
        );
        assert_eq!(
            table.resize(9, EVE, 80),
            [],
            "a connection never takes more than a share"
        );
    }

    #[test]
    fn with_a_single_slot_the_newest_connection_is_served() {
        let mut table = table(1, 50);
        assert_eq!(
            add_for_owner(&mut table, Connection(0, true, 0), ANNA),
            None
        );
        assert_eq!(
            add_for_owner(&mut table, Connection(1, true, 0), EVE),
            Some(0)
        );
        assert_eq!(table.remove(EVE, 1).map(|removed| removed.0), Some(1));
        assert_eq!((table.len(), table.remove(EVE, 1)), (0, None));
    }
}

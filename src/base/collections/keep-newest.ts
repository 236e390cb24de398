/**
 * Removes what was added to a `Map` or `Set` first, until at most `max` members are left. Who wants a member to count as new deletes it before it is
 * added again.
 */
export function keepNewest<K>(
  members: { readonly size: number; keys(): Iterable<K>; delete(key: K): boolean },
  max: number,
): void {
  for (const oldest of members.keys()) {
    if (members.size <= max) return;
    members.delete(oldest);
  }
}

/** The end of one item. */
export type ItemEnd<Result> = { readonly value: Result } | { readonly error: unknown };

/**
 * Makes items by requests that make all of theirs or none. A request that is refused for one item does not say for which; so its items are sent again in
 * two halves, until single ones fail by themselves: at most 2 log2(n) further requests for each bad item (docs/spec/vpc-nics.md#5.4). An error
 * that `isRefusal` denies is the end of all items of its request, because they may have been made.
 *
 * Results are in the order of the items. Never rejects, except with an error of `isRefusal` itself.
 */
export async function makeByHalves<Item, Result>(
  items: readonly Item[],
  make: (items: readonly Item[]) => Promise<readonly Result[]>,
  isRefusal: (error: unknown) => boolean,
): Promise<readonly ItemEnd<Result>[]> {
  if (items.length === 0) return [];
  try {
    return (await make(items)).map((value) => ({ value }));
  } catch (error) {
    if (items.length === 1 || !isRefusal(error)) return items.map(() => ({ error }));
  }
  const middle = Math.ceil(items.length / 2);
  const first = await makeByHalves(items.slice(0, middle), make, isRefusal);
  return [...first, ...(await makeByHalves(items.slice(middle), make, isRefusal))];
}

/**
 * A port with one replaced method: for tests in which a real kernel refuses something.
 *
 * Owns: {@link overridden}. Does not know: which port.
 *
 * ```ts
 * const refusing = overridden(nft, { run: () => { throw new NftError("busy", "refused by the test", { script: "" }); } });
 * ```
 */

/** Methods run on the original, so that its private fields are there; those given are called as they are. */
export function overridden<T extends object>(original: T, methods: Partial<T>): T {
  return new Proxy(original, {
    get: (target, key) => {
      if (Object.hasOwn(methods, key)) return Reflect.get(methods, key);
      const value: unknown = Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

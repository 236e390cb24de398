/**
 * Memory of this process that the C library keeps after it was freed.
 *
 * Owns: returning it to the kernel. Does not know: V8's heap, which `--optimize-for-size` makes small.
 *
 * ```ts
 * releaseFreeMemory();
 * ```
 */
export { releaseFreeMemory } from "#kernel/ffi";

/**
 * The only error class of the kernel layer and the translation of errno numbers into it.
 *
 * Owns: {@link KernelError} and its closed codes. Does not know: the calls to the kernel.
 *
 * ```ts
 * try {
 *   stack.links.delete(index);
 * } catch (error) {
 *   if (!isKernelError(error, "no-device")) throw error; // gone already, as wanted
 * }
 * ```
 */
export { errnoNumber } from "./errno.ts";
export { isKernelError, KernelError, type KernelErrorCode } from "./kernel-error.ts";

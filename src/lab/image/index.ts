/**
 * Programs of an image's archive (`./run image`) in place of the build's: its root file system in a folder, and the command line that runs a
 * program in it.
 *
 * Owns: the folder that it is given. Each program has a mount namespace of its own, so nothing is left mounted. Does not know: which programs.
 *
 * ```ts
 * const { isthmus, cniExecutable, digest } = await unpackImage("isthmus-0.2.0.oci.tar", folder);
 * spawn(isthmus[0], [...isthmus.slice(1), "coild", "--version"]);
 * ```
 */
export { ImageError } from "./errors.ts";
export { unpackImage } from "./unpack.ts";

import { openLibrary } from "./library.ts";

/** A libnftables context. Opaque. */
export type NftHandle = { readonly __nft: never };

/** The functions of libnftables(3) that are used. */
export interface Libnftables {
  /** `undefined` when the context cannot be made. */
  contextNew(): NftHandle | undefined;
  contextFree(context: NftHandle): void;
  setOutputFlags(context: NftHandle, flags: number): void;
  setDryRun(context: NftHandle, dry: boolean): void;
  /** Runs commands in nft(8) syntax; false when they were refused. */
  run(context: NftHandle, commands: string): boolean;
  /** The output of the last run. */
  output(context: NftHandle): string;
  /** The error output of the last run. */
  error(context: NftHandle): string;
}

let loaded: Libnftables | undefined;

/** Loads libnftables at the first call. Throws {@link KernelError} `unsupported` when it is not installed. */
export function libnftables(): Libnftables {
  loaded ??= load();
  return loaded;
}

function load(): Libnftables {
  const library = openLibrary("libnftables.so.1");
  const create = library.func("void *nft_ctx_new(uint32_t flags)");
  const free = library.func("void nft_ctx_free(void *ctx)");
  const bufferOutput = library.func("int nft_ctx_buffer_output(void *ctx)");
  const bufferError = library.func("int nft_ctx_buffer_error(void *ctx)");
  const outputFlags = library.func("void nft_ctx_output_set_flags(void *ctx, uint32_t flags)");
  const dryRun = library.func("void nft_ctx_set_dry_run(void *ctx, bool dry)");
  const run = library.func("int nft_run_cmd_from_buffer(void *ctx, const char *buffer)");
  const getOutput = library.func("const char *nft_ctx_get_output_buffer(void *ctx)");
  const getError = library.func("const char *nft_ctx_get_error_buffer(void *ctx)");
  return {
    contextNew() {
      const context = create(0);
      if (context === null) return undefined;
      bufferOutput(context);
      bufferError(context);
      return context;
    },
    contextFree: (context) => free(context),
    setOutputFlags: (context, flags) => outputFlags(context, flags),
    setDryRun: (context, dry) => dryRun(context, dry),
    run: (context, commands) => run(context, commands) === 0,
    output: (context) => getOutput(context) ?? "",
    error: (context) => getError(context) ?? "",
  };
}

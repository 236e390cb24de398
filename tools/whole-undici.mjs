/**
 * Puts the whole of undici in place of the parts that the sources use (`src/base/undici`), so that tests show that these clients do not depend on the choice:
 *
 *     NODE_OPTIONS=--import=$PWD/tools/whole-undici.mjs node tools/test.ts unit --only=src/kube/client,src/cloud/rest
 */
import { registerHooks } from "node:module";

registerHooks({
  resolve: (specifier, context, next) => next(specifier === "./undici-core.cjs" ? "undici" : specifier, context),
});

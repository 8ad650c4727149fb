"""A client of Android's VehicleServer that knows the proto and nothing else of Paddock.

client.py PROTO VERSION: reads one wish a line, as JSON, and answers each with a line. Stubs are made from the proto, without what has come
after Android VERSION.
"""

import json
import queue
import sys
import tempfile
import threading
import time
from importlib import resources
from pathlib import Path

import grpc
from google.protobuf import descriptor_pool, empty_pb2, json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_tools import protoc

SERVICE = "android.hardware.automotive.vehicle.proto.VehicleServer"
PATIENCE = 20


def as_of(proto, version):
    """The proto as that version of Android has it: a remark says since when what follows is there."""
    kept, since = [], 0
    for line in proto.splitlines():
        text = line.strip()
        if text.startswith("// Since Android "):
            since = int(text.removeprefix("// Since Android ").rstrip("."))
        elif text.endswith("{") or text == "}":
            since = 0
        if since <= version:
            kept.append(line)
    return "\n".join(kept)


def stubs(proto, version):
    folder = Path(tempfile.mkdtemp())
    (folder / "vehicle_server.proto").write_text(as_of(Path(proto).read_text(), version))
    well_known = resources.files("grpc_tools") / "_proto"
    words = [f"-I{folder}", f"-I{well_known}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    if protoc.main(["protoc", *words, "vehicle_server.proto"]) != 0:
        sys.exit("no stubs could be made")
    sys.path.insert(0, str(folder))
    import vehicle_server_pb2
    import vehicle_server_pb2_grpc

    return vehicle_server_pb2, vehicle_server_pb2_grpc


class Client:
    def __init__(self, proto, version):
        self.pb, self.rpc = stubs(proto, version)
        self.heard = queue.Queue()

    def connect(self, address, token, emulator):
        self.channel = grpc.insecure_channel(address)
        self.stub = self.rpc.VehicleServerStub(self.channel)
        self.who = {"metadata": [("authorization", f"Bearer {token}"), ("x-paddock-emulator", emulator)]}
        self.call = dict(self.who, timeout=PATIENCE)
        return sorted(name for name in vars(self.stub))

    def configurations(self):
        listed = self.stub.GetAllPropertyConfig(empty_pb2.Empty(), **self.call)
        return [json_format.MessageToDict(each, preserving_proto_field_name=True) for each in listed]

    def requests(self, values):
        requests = [self.pb.VehiclePropValueRequest(request_id=n, value=json_format.ParseDict(value, self.pb.VehiclePropValue()))
                    for n, value in enumerate(values, 1)]
        return self.pb.VehiclePropValueRequests(requests=requests)

    def results(self, answer):
        """In the order of the requests; whoever answers may have another."""
        results = sorted(answer.results, key=lambda result: result.request_id)
        assert [result.request_id for result in results] == list(range(1, len(results) + 1)), answer
        return results

    def get(self, values):
        results = self.results(self.stub.GetValues(self.requests(values), **self.call))
        return [shown(result.value) if result.HasField("value") else self.pb.StatusCode.Name(result.status) for result in results]

    def set(self, values):
        results = self.results(self.stub.SetValues(self.requests(values), **self.call))
        return [self.pb.StatusCode.Name(result.status) for result in results]

    def subscribe(self, prop, areas, rate):
        options = self.pb.SubscribeOptions(prop_id=prop, area_ids=areas, sample_rate=rate)
        return self.status(self.stub.Subscribe(self.pb.SubscribeRequest(options=options), **self.call))

    def unsubscribe(self, prop, area):
        return self.status(self.stub.Unsubscribe(self.pb.UnsubscribeRequest(prop_id=prop, area_id=area), **self.call))

    def sample(self, prop, area, rate):
        request = self.pb.UpdateSampleRateRequest(prop=prop, area_id=area, sample_rate=rate)
        return self.status(self.stub.UpdateSampleRate(request, **self.call))

    def status(self, answer):
        return self.pb.StatusCode.Name(answer.status_code)

    def limits(self, prop, area):
        place = self.pb.PropIdAreaId(prop_id=prop, area_id=area)
        ends = self.stub.GetMinMaxSupportedValues(self.pb.GetMinMaxSupportedValuesRequest(prop_id_area_id=[place]), **self.call)
        words = self.stub.GetSupportedValuesLists(self.pb.GetSupportedValuesListsRequest(prop_id_area_id=[place]), **self.call)
        return [json_format.MessageToDict(each, preserving_proto_field_name=True) for each in (ends.result[0], words.result[0])]

    def dump(self, options):
        return self.stub.Dump(self.pb.DumpOptions(options=options), **self.call).buffer

    def check(self):
        return self.status(self.stub.CheckHealth(empty_pb2.Empty(), **self.call))

    def follow(self):
        """Opens a stream; it is there when the server has said so."""
        stream = self.stub.StartPropertyValuesStream(empty_pb2.Empty(), **self.who)
        self.heard = heard = queue.Queue()

        def listen():
            try:
                for batch in stream:
                    for value in batch.values:
                        heard.put(value)
                heard.put("OK")
            except grpc.RpcError as error:
                heard.put(error.code().name)

        stream.initial_metadata()
        threading.Thread(target=listen, daemon=True).start()

    def hear(self, prop, area, values):
        """Waits for this value, and says how many others of the same property came before it. Time never goes back."""
        others, last, end = 0, 0, time.monotonic() + PATIENCE
        while True:
            value = self.heard.get(timeout=max(0, end - time.monotonic()))
            if isinstance(value, str):
                raise RuntimeError(f"the stream has ended with {value}")
            if (value.prop, value.area_id) == (prop, area):
                assert value.timestamp >= last, value
                last = value.timestamp
                if shown(value)[:1] == [values]:
                    return others
                others += 1

    def told(self, prop, seconds):
        """How often it is told of a property in this time."""
        count, end = 0, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                value = self.heard.get(timeout=left)
            except queue.Empty:
                break
            count += not isinstance(value, str) and value.prop == prop
        return count

    def ended(self):
        """How the stream ended."""
        end = time.monotonic() + PATIENCE
        while True:
            value = self.heard.get(timeout=max(0, end - time.monotonic()))
            if isinstance(value, str):
                return value

    def health(self, service):
        """Without any credential."""
        request = health_pb2.HealthCheckRequest(service=service)
        answer = health_pb2_grpc.HealthStub(self.channel).Check(request, timeout=PATIENCE)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    def reflection(self):
        """As tools without a proto do it: services, then a method with its messages, then a call made of these alone."""
        database = ProtoReflectionDescriptorDatabase(self.channel)
        pool = descriptor_pool.DescriptorPool(database)
        service = pool.FindServiceByName(SERVICE)
        method = service.FindMethodByName("GetValues")
        fields = [field.name for field in method.input_type.fields]
        return {"services": sorted(database.get_services()), "methods": [m.name for m in service.methods], "fields": fields}


def shown(value):
    for kind in ("int32_values", "float_values", "int64_values", "string_value", "byte_values"):
        held = getattr(value, kind)
        if held:
            held = held if isinstance(held, str) else list(held)
            return [held, value.timestamp]
    return [None, value.timestamp]


def main():
    client = Client(sys.argv[1], int(sys.argv[2]))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        wish, *words = json.loads(line)
        try:
            answer = {"done": getattr(client, wish)(*words)}
        except grpc.RpcError as error:
            answer = {"refused": error.code().name, "why": error.details()}
        except Exception as error:
            answer = {"failed": f"{wish}: {type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()

// SPDX-License-Identifier: Apache-2.0
#include "container.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string_view>

namespace fastdelta {

namespace {

constexpr char kMagic[] = "xclbin2";
constexpr std::uint64_t kHeader = 304;  // of the file; the header of the container follows
constexpr std::uint64_t kLength = kHeader, kPlatform = kHeader + 48, kUuid = kHeader + 112, kSections = kHeader + 144;
constexpr std::uint64_t kFirstSection = kHeader + 152, kSectionBytes = 40;
constexpr std::uint64_t kLimit = std::uint64_t{1} << 32;
constexpr std::uint32_t kBitstream = 0, kMetadata = 2, kTopology = 6, kConnectivity = 7, kIpLayout = 8, kClocks = 11, kGroups = 26;
constexpr std::uint32_t kKernel = 1;
constexpr int kSimulationFormat = 1;

template <class Value>
Value at(const std::uint8_t* data, std::uint64_t offset) {
    Value value;
    std::memcpy(&value, data + offset, sizeof value);
    return value;
}

std::string text(const std::uint8_t* data, std::size_t size) {
    const auto* start = reinterpret_cast<const char*>(data);
    return {start, strnlen(start, size)};
}

// Calls function(row) for the rows of a table: a count, and rows from `start` on.
template <class Count, class Function>
void for_rows(const std::uint8_t* data, std::uint64_t size, std::uint64_t start, std::uint64_t row, const char* what, Function function) {
    if (size < start) throw std::runtime_error(std::string("the xclbin has no ") + what);
    const std::int64_t count = at<Count>(data, 0);
    if (count < 0 || start + static_cast<std::uint64_t>(count) * row > size) {
        throw std::runtime_error(std::string("the ") + what + " of the xclbin ends too early");
    }
    for (std::int64_t i = 0; i < count; ++i) function(data + start + static_cast<std::uint64_t>(i) * row);
}

// JSON of the form {"name": 1, "name": {"name": "text"}}.
class Json {
public:
    Json(const std::uint8_t* data, std::uint64_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

    void object(const std::function<void(const std::string&)>& member) {
        expect('{');
        if (accept('}')) return;
        do {
            const std::string name = string();
            expect(':');
            member(name);
        } while (accept(','));
        expect('}');
    }
    std::string string() {
        expect('"');
        const std::size_t end = rest_.find_first_of("\"\\");
        if (end == std::string_view::npos || rest_[end] != '"') fail();
        std::string value(rest_.substr(0, end));
        rest_.remove_prefix(end + 1);
        return value;
    }
    long number() {
        space();
        std::size_t digits = 0;
        while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') ++digits;
        if (digits == 0 || digits > 9) fail();
        const long value = std::stol(std::string(rest_.substr(0, digits)));
        rest_.remove_prefix(digits);
        return value;
    }

private:
    void space() {
        while (!rest_.empty() && std::strchr(" \t\r\n", rest_.front())) rest_.remove_prefix(1);
    }
    bool accept(char wanted) {
        space();
        if (rest_.empty() || rest_.front() != wanted) return false;
        rest_.remove_prefix(1);
        return true;
    }
    void expect(char wanted) {
        if (!accept(wanted)) fail();
    }
    [[noreturn]] static void fail() { throw std::runtime_error("the bitstream describes no simulation"); }

    std::string_view rest_;
};

using Attributes = std::map<std::string, std::string>;

// Calls function(tag, attributes) for every start of an element. Names and values in the metadata
// of a container need no escapes.
void for_elements(std::string_view xml, const std::function<void(const std::string&, const Attributes&)>& function) {
    static constexpr std::string_view kSpace = " \t\r\n";
    for (std::size_t at = xml.find('<'); at != std::string_view::npos; at = xml.find('<', at + 1)) {
        if (at + 1 >= xml.size() || std::strchr("?!/", xml[at + 1])) continue;
        const std::size_t close = xml.find('>', at);
        if (close == std::string_view::npos) throw std::runtime_error("the metadata of the xclbin ends in an element");
        std::string_view element = xml.substr(at + 1, close - at - 1);
        if (!element.empty() && element.back() == '/') element.remove_suffix(1);
        const std::string tag(element.substr(0, element.find_first_of(kSpace)));
        Attributes attributes;
        for (std::size_t equals = element.find("=\""); equals != std::string_view::npos; equals = element.find("=\"", equals)) {
            const std::size_t start = element.find_last_of(kSpace, equals) + 1;
            const std::size_t end = element.find('"', equals + 2);
            if (end == std::string_view::npos) throw std::runtime_error("the metadata of the xclbin is damaged");
            attributes.emplace(element.substr(start, equals - start), element.substr(equals + 2, end - equals - 2));
            equals = end;
        }
        function(tag, attributes);
        at = close;
    }
}

const std::string& attribute(const Attributes& attributes, const char* name) {
    const auto found = attributes.find(name);
    if (found == attributes.end()) throw std::runtime_error(std::string("an element of the metadata has no ") + name);
    return found->second;
}

}  // namespace

Uuid Container::uuid_of(const void* data) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    if (std::memcmp(bytes, kMagic, sizeof kMagic) != 0) throw std::runtime_error("this is no xclbin");
    return at<Uuid>(bytes, kUuid);
}

Container::Container(const void* data) : uuid(uuid_of(data)) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    const auto length = at<std::uint64_t>(bytes, kLength);
    const auto count = at<std::uint32_t>(bytes, kSections);
    if (uuid == Uuid{}) throw std::runtime_error("the xclbin has no uuid");
    if (length > kLimit || kFirstSection + count * kSectionBytes > length) throw std::runtime_error("the header of the xclbin is damaged");
    platform = text(bytes + kPlatform, 64);
    std::map<std::uint32_t, Bytes> sections;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint8_t* header = bytes + kFirstSection + i * kSectionBytes;
        const auto offset = at<std::uint64_t>(header, 24), size = at<std::uint64_t>(header, 32);
        if (offset > length || size > length - offset) throw std::runtime_error("a section of the xclbin ends behind its end");
        sections.emplace(at<std::uint32_t>(header, 0), Bytes{bytes + offset, size});
    }
    read_manifest(sections[kBitstream]);
    if (!simulated) return;

    const auto read_memories = [](Bytes section, const char* what, std::vector<ContainerMemory>& rows) {
        for_rows<std::int32_t>(section.data, section.size, 8, 40, what, [&](const std::uint8_t* row) {
            rows.push_back({row[1] != 0, at<std::uint64_t>(row, 16), at<std::uint64_t>(row, 8) * 1024, text(row + 24, 16)});
        });
    };
    read_memories(sections[kTopology], "memory topology", memories);
    if (sections.count(kGroups)) read_memories(sections[kGroups], "group topology", groups);
    const Bytes layout = sections[kIpLayout];
    for_rows<std::int32_t>(layout.data, layout.size, 8, 80, "layout of units", [&](const std::uint8_t* row) {
        if (at<std::uint32_t>(row, 0) != kKernel) throw std::runtime_error("an entry of the layout of units is no kernel");
        ContainerUnit unit{text(row + 16, 64), "", at<std::uint64_t>(row, 8), 0, false, {}};
        unit.kernel = unit.name.substr(0, unit.name.find(':'));
        const std::uint32_t protocol = at<std::uint32_t>(row, 4) >> 8 & 0xFF;
        if (protocol > 1) throw std::runtime_error(unit.name + " has a control protocol that is not simulated");
        unit.chain = protocol == 1;
        units.push_back(std::move(unit));
    });
    if (sections.count(kClocks)) {
        const Bytes table = sections[kClocks];
        for_rows<std::int16_t>(table.data, table.size, 2, 136, "clocks", [&](const std::uint8_t* row) { clocks.push_back(at<std::uint16_t>(row, 0)); });
    }
    read_metadata(sections[kMetadata], sections[kConnectivity]);
}

void Container::read_manifest(Bytes bytes) {
    if (bytes.size == 0 || bytes.data[0] != '{') return;
    long format = 0;
    Json json(bytes.data, bytes.size);
    json.object([&](const std::string& name) {
        if (name == "kernels") json.object([&](const std::string& kernel) { keys[kernel] = json.string(); });
        else if (name == "fastdelta_simulation") format = json.number();
        else throw std::runtime_error("the simulation in the xclbin has an unknown field " + name);
    });
    if (format != kSimulationFormat) {
        throw std::runtime_error("the xclbin has simulation format " + std::to_string(format) + ", this library reads "
                                 + std::to_string(kSimulationFormat) + "; build it again");
    }
    simulated = true;
}

void Container::read_metadata(Bytes bytes, Bytes connectivity) {
    std::map<std::string, std::map<int, std::string>> ports;  // kernel, argument: port
    std::map<std::string, std::uint64_t> ranges;
    std::string kernel;
    for_elements({reinterpret_cast<const char*>(bytes.data), bytes.size}, [&](const std::string& tag, const Attributes& attributes) {
        if (tag == "kernel") {
            kernel = attribute(attributes, "name");
        } else if (tag == "arg") {
            ports[kernel][std::stoi(attribute(attributes, "id"))] = attribute(attributes, "port");
        } else if (tag == "port" && attribute(attributes, "mode") == "slave") {
            ranges[kernel] = std::stoull(attribute(attributes, "range"), nullptr, 0);
        }
    });
    for (ContainerUnit& unit : units) {
        if (!ranges.count(unit.kernel)) throw std::runtime_error("the metadata of the xclbin names no registers of " + unit.kernel);
        unit.range = ranges[unit.kernel];
    }
    for_rows<std::int32_t>(connectivity.data, connectivity.size, 4, 12, "connectivity", [&](const std::uint8_t* row) {
        const auto argument = at<std::int32_t>(row, 0), unit = at<std::int32_t>(row, 4), memory = at<std::int32_t>(row, 8);
        if (unit < 0 || static_cast<std::size_t>(unit) >= units.size() || memory < 0 || static_cast<std::size_t>(memory) >= memories.size()) {
            throw std::runtime_error("a connection of the xclbin is to something that is not there");
        }
        ContainerUnit& connected = units[static_cast<std::size_t>(unit)];
        const auto& arguments = ports[connected.kernel];
        const auto port = arguments.find(argument);
        if (port == arguments.end()) throw std::runtime_error("the metadata of the xclbin has no argument " + std::to_string(argument));
        std::vector<int>& behind = connected.ports[port->second];
        if (std::find(behind.begin(), behind.end(), memory) == behind.end()) behind.push_back(memory);
    });
}

}  // namespace fastdelta

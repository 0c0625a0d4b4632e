package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Codes of requests that the client has no public call for.
const (
	queryConsumerOffset = 14
	getRoute            = 105
)

// frameMax is more than any answer here is long, in bytes.
const frameMax = 1 << 20

// masterAddress finds the master in a route; older servers leave the quotes of the number out.
var masterAddress = regexp.MustCompile(`"brokerAddrs":\{"?0"?:"([^"]+)"`)

// answer is what a server says to a request.
type answer struct {
	Code   int               `json:"code"`
	Remark string            `json:"remark"`
	Fields map[string]string `json:"extFields"`
	body   []byte
}

// ask sends one request over a connection of its own.
func ask(address string, code int, fields map[string]string) (*answer, error) {
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return nil, err
	}
	header, err := json.Marshal(map[string]any{
		"code": code, "language": "GO", "version": 0, "opaque": 1, "flag": 0, "extFields": fields,
	})
	if err != nil {
		return nil, err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	if _, err := connection.Write(append(frame, header...)); err != nil {
		return nil, err
	}
	var lengths [2]uint32
	if err := binary.Read(connection, binary.BigEndian, &lengths); err != nil {
		return nil, err
	}
	if lengths[0] > frameMax || lengths[1] > lengths[0]-4 {
		return nil, fmt.Errorf("an answer of %d bytes with a header of %d, more than %d", lengths[0], lengths[1], frameMax)
	}
	rest := make([]byte, lengths[0]-4)
	if _, err := io.ReadFull(connection, rest); err != nil {
		return nil, err
	}
	told := &answer{body: rest[lengths[1]:]}
	return told, json.Unmarshal(rest[:lengths[1]], told)
}

// routeAddress asks the name server for the address of the master that has a topic.
func routeAddress(topic string) (string, error) {
	told, err := ask(os.Getenv("NAMESRV"), getRoute, map[string]string{"topic": topic})
	if err != nil {
		return "", err
	}
	found := masterAddress.FindSubmatch(told.body)
	if found == nil {
		return "", fmt.Errorf("no master in the route of %s: %d %s %s", topic, told.Code, told.Remark, told.body)
	}
	return string(found[1]), nil
}

// awaitConsumed waits until the broker shows that a group has had so many messages: the last commit of a client that
// stops waits for no answer.
func awaitConsumed(group, topic string, queues, count int) {
	within(45*time.Second, fmt.Sprintf("%d messages of %s consumed by %s", count, topic, group), func() bool {
		sum := 0
		for id := 0; id < queues; id++ {
			told, err := ask(brokerAddress(), queryConsumerOffset,
				map[string]string{"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(id)})
			if err != nil || told.Code != 0 {
				return false
			}
			offset, err := strconv.Atoi(told.Fields["offset"])
			must(err, "committed offset")
			sum += offset
		}
		return sum == count
	})
}

// hostOf is the address of the broker that an offset id bears.
func hostOf(offsetID string) string {
	id, err := primitive.UnmarshalMsgID([]byte(offsetID))
	must(err, "offset id "+offsetID)
	return net.JoinHostPort(id.Addr, strconv.Itoa(id.Port))
}
